"""TLS for the HTTP server waitress: its connections, and certificates that can be replaced while the server runs.

waitress does not support TLS. Its event loop reads and writes each connection with recv() and send() of a non-blocking
socket, so a TLS socket can replace the plain socket. OpenSSL does the handshake during the first reads: a client that
never completes its handshake is treated like any idle connection, and does not block other clients.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from verifier.runtime.channel import Channel
from verifier.runtime.errors import ErrorKind, OperationError
from verifier.runtime.files import access_rule, version, why_not_private

INVALID_CERTIFICATE = ErrorKind(
    "InvalidCertificate",
    500,
    "The files in --tlsCertFile and --tlsKeyFile cannot be used.",
    "Use PEM files: the certificate followed by its chain, and its private key without a password. "
    + access_rule("the file of the key"),
)

# The size of a TLS record, in bytes. Write no more at once: if OpenSSL sent only a part of a larger write, the whole
# write would have to be repeated.
_RECORD = 16 * 1024


class Certificate:
    """A certificate and its key, from PEM files. Raises OperationError InvalidCertificate if a file cannot be used."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.name = str(certificate)
        self._certificate = certificate
        self._key = key
        self.reload()

    @property
    def is_outdated(self) -> bool:
        """Return whether a file was changed, replaced or removed since the last attempt to read both."""
        return self._tried != self._versions()

    def reload(self) -> None:
        """Read the files again, for new connections.

        Raise OperationError, and keep the former certificate, if the files cannot be used.
        """
        # Get the versions before the files are read, because the files may change again meanwhile.
        self._tried = self._versions()
        self._context = self._load()

    def connect(self, server: Any, plain: socket.socket, *options: Any, **more: Any) -> None:
        """Begin to serve an accepted connection. waitress calls this function in place of its `channel_class`.

        Raises no OSError, because waitress would then close the listening socket.
        """
        try:
            # If the client has already left, `wrap_socket` would return a socket without TLS.
            plain.getpeername()
            plain.setblocking(False)
            secured = self._context.wrap_socket(
                plain, server_side=True, do_handshake_on_connect=False
            )
            TlsChannel(server, secured, *options, **more)
        except OSError:
            plain.close()

    def _versions(self) -> list[tuple[int, int] | None]:
        return [version(each) for each in (self._certificate, self._key)]

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        try:
            reason = why_not_private(self._key.stat())
            if reason is not None:
                raise _invalid(f"The key file {self._key} cannot be used: {reason}.")
            # Without a password function, OpenSSL would ask for a password at the terminal.
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except (OSError, ValueError) as error:
            text = f"The files {self._certificate} and {self._key} cannot be used: {error}."
            raise _invalid(text) from error
        return context


def _no_password() -> str:
    raise ValueError("the key has a password")


def _invalid(description: str) -> OperationError:
    return OperationError(INVALID_CERTIFICATE, description)


class TlsChannel(Channel):
    """A connection of waitress over TLS."""

    def __init__(self, server: Any, secured: ssl.SSLSocket, *options: Any, **more: Any) -> None:
        # The event loop reads while a request thread may write, but OpenSSL allows one call at a time.
        self._in_use = threading.Lock()
        self._handshake_writes = False
        # Once TLS has ended, the socket would send and receive plain text.
        self._ended = False
        self._secured = secured
        super().__init__(server, secured, *options, **more)
        self.sendbuf_len = _RECORD

    def writable(self) -> bool:
        return self._handshake_writes or bool(super().writable())

    def handle_write(self) -> None:
        if self._handshake_writes:
            self.handle_read()
        if self.connected:
            super().handle_write()

    def handle_read(self) -> None:
        self._handshake_writes = False
        try:
            while self._read_some():
                pass
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            self._handshake_writes = True
        except OSError:
            # For example, the client does not use TLS or rejects the certificate, or the connection is lost.
            self.handle_close()

    def _read_some(self) -> bool:
        """Read from the connection once. Return whether OpenSSL has more decrypted bytes.

        The caller must then read these bytes, because poll() does not report them.
        """
        with self._in_use:
            data = self._secured.recv(self.adj.recv_bytes)
            more = self._secured.pending() > 0
        if not data:
            self.handle_close()
            return False
        self.last_activity = time.time()
        self.received(data)
        return more and self.connected

    def send(self, data: bytes, do_close: bool = True) -> int:
        try:
            with self._in_use:
                return 0 if self._ended else int(self._secured.send(data))
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError:
            if do_close:
                self.handle_close()
            return 0

    def handle_close(self) -> None:
        # Tell the client that the answer is complete; its own close notice is not awaited.
        with self._in_use, suppress(OSError, ValueError):
            self._ended = True
            self._secured.unwrap()
        super().handle_close()
