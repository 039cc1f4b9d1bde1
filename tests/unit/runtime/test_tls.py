"""Tests the HTTP server with TLS: protocol versions, many slow clients, certificate files, and new ones on SIGHUP."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from waitress.server import create_server

from tests.support.certificates import make_certificates
from tests.support.tokens import OPERATOR, READER, bearer, write_tokens
from tests.support.waiting import PATIENCE, wait_for
from tests.unit.deadlines import no_longer_than
from tests.unit.runtime.test_connections import HALF_SENT
from verifier.runtime.errors import OperationError
from verifier.runtime.tls import Certificate, TlsChannel

ROOT = Path(__file__).parents[3]

SERVER = """
import socket, sys
from pathlib import Path
from tests.support.small_app import make_app
from verifier.runtime import httpd
from verifier.runtime.access import require_tokens
from verifier.runtime.protection import Protection, ProtectionOptions
from verifier.runtime.tasks import StopToken
# Never close idle connections: a server that waits for one would never answer.
httpd.LONGEST_SILENCE = 1_000_000
with socket.create_server(("127.0.0.1", 0)) as probe:
    port = probe.getsockname()[1]
protection = Protection(ProtectionOptions(*map(Path, sys.argv[1:])))
app = make_app()
require_tokens(app, protection.tokens)
server = httpd.HttpServer(app, "127.0.0.1", port, protection.certificate)
print(port, flush=True)
server.serve(StopToken(), between=protection.reload_if_needed)
"""


def write_certificate(folder: Path, name: str) -> Path:
    """Write a new certificate with its key to `server.pem` in the folder, and return the path of the CA's certificate.

    The files of the CA are in the subfolder `name`, which must not exist before.
    """
    made = make_certificates(_folder(folder / name))
    made.server.chmod(0o600)
    (folder / "server.pem").unlink(missing_ok=True)
    made.server.rename(folder / "server.pem")
    return made.authority


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


@dataclass
class Served:
    """A server in a separate process, the folder of its files, and the CA of its first certificate."""

    port: int
    folder: Path
    authority: Path
    process: subprocess.Popen[bytes]

    def connection(self, authority: Path | None = None) -> HTTPSConnection:
        context = ssl.create_default_context(cafile=str(authority or self.authority))
        return HTTPSConnection("127.0.0.1", self.port, context=context, timeout=PATIENCE)

    def secured(self, context: ssl.SSLContext) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        return context.wrap_socket(plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False)

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority))

    def reload(self) -> None:
        self.process.send_signal(signal.SIGHUP)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    authority = write_certificate(tmp_path, "first")
    files = [write_tokens(tmp_path), tmp_path / "server.pem", tmp_path / "server.pem"]
    command = [sys.executable, "-c", SERVER, *map(str, files)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            yield Served(int(process.stdout.readline()), tmp_path, authority, process)
        finally:
            process.kill()


def ask(
    connection: HTTPSConnection, method: str, path: str, body: Any = None, token: str = OPERATOR
) -> tuple[int, bytes]:
    text = None if body is None else json.dumps(body)
    connection.request(method, path, text, bearer(token))
    answer = connection.getresponse()
    return answer.status, answer.read()


def can_connect(server: Served, authority: Path) -> bool:
    connection = server.connection(authority)
    try:
        return ask(connection, "POST", "/body")[0] == 200
    except ssl.SSLCertVerificationError:
        return False
    finally:
        connection.close()


def test_requests_over_tls(server: Served) -> None:
    connection = server.connection()
    large = {"text": "x" * 900_000}
    for _ in range(2):
        status, body = ask(connection, "POST", "/body", large)
        assert (status, json.loads(body)) == (200, {"body": large})
        assert ask(connection, "GET", "/large/1000000", token=READER) == (200, b"x" * 1_000_000)
    assert ask(connection, "POST", "/body", token=READER)[0] == 403
    assert ask(connection, "GET", "/large/1000000", token="wrong")[0] == 401
    connection.close()

    # Send two requests in one TLS record. The server must announce the end of the connection, or the read fails.
    request = f"GET /named HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {READER}\r\n"
    with server.secured(server.context()) as secured:
        secured.sendall(f"{request}\r\n{request}Connection: close\r\n\r\n".encode())
        assert secured.makefile("rb").read().count(b"Short and stout") == 2


def test_old_versions_and_plain_requests_are_refused(server: Served) -> None:
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = server.context()
        context.minimum_version = context.maximum_version = version
        with server.secured(context) as secured:
            assert secured.version() == version.name.replace("_", ".")
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        context = server.context()
        # With its default settings, the client would refuse old versions itself.
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning):
            context.minimum_version = context.maximum_version = version
        with pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
            server.secured(context)
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as plain:
        plain.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with suppress(ConnectionResetError):
            assert b"HTTP" not in plain.recv(1000)
    assert ask(server.connection(), "GET", "/large/1000000")[0] == 200


def client_hello(context: ssl.SSLContext) -> bytes:
    """Return the first message that a client with this context sends in a TLS handshake."""
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


def test_500_slow_clients_delay_no_other_client(server: Served) -> None:
    context = server.context()
    hello = client_hello(context)
    with ExitStack() as opened:
        for number in range(500):
            if number % 5 == 4:
                secured = opened.enter_context(server.secured(context))
                secured.sendall(HALF_SENT[number % len(HALF_SENT)])
                continue
            plain = opened.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            plain.sendall([b"", hello[:100], hello, b"\x16"][number % 5])
        with no_longer_than(PATIENCE):
            for _ in range(3):
                connection = server.connection()
                assert ask(connection, "GET", "/named")[0] == 418
                connection.close()


def test_files_are_reloaded_on_sighup(server: Served) -> None:
    kept = server.connection()
    assert ask(kept, "POST", "/body")[0] == 200
    token = "another-token-0123456789"
    (server.folder / "tokens").write_text(f"operator {token}")
    server.reload()
    wait_for(lambda: ask(kept, "POST", "/body", token=token)[0] == 200, "the new token")
    assert ask(kept, "POST", "/body")[0] == 401

    # Invalid files must change nothing.
    (server.folder / "server.pem").write_text("no certificate")
    (server.folder / "tokens").write_text(f"operator {OPERATOR}")
    server.reload()
    wait_for(lambda: ask(kept, "POST", "/body")[0] == 200, "the former token")
    assert can_connect(server, server.authority)

    second = write_certificate(server.folder, "second")
    server.reload()
    wait_for(lambda: can_connect(server, second), "the new certificate")
    assert not can_connect(server, server.authority)
    assert ask(kept, "POST", "/body")[0] == 200, "no connection is lost"


def test_changed_files_are_noticed_once(tmp_path: Path) -> None:
    write_certificate(tmp_path, "first")
    path = tmp_path / "server.pem"
    certificate = Certificate(path, path)
    assert not certificate.is_outdated
    write_certificate(tmp_path, "second")
    assert certificate.is_outdated
    certificate.reload()
    path.unlink()
    assert certificate.is_outdated
    with pytest.raises(OperationError, match="No such file"):
        certificate.reload()
    # Otherwise, the log would have the same error every few seconds.
    assert not certificate.is_outdated


def test_a_corrected_mode_is_noticed(tmp_path: Path) -> None:
    write_certificate(tmp_path, "first")
    path = tmp_path / "server.pem"
    certificate = Certificate(path, path)
    path.chmod(0o644)
    with pytest.raises(OperationError, match="can be accessed by other users"):
        certificate.reload()
    assert not certificate.is_outdated
    path.chmod(0o600)
    assert certificate.is_outdated
    certificate.reload()


def encrypted(key: bytes) -> bytes:
    return load_pem_private_key(key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
    )


def test_wrong_certificate_files_are_refused(tmp_path: Path) -> None:
    write_certificate(tmp_path, "first")
    good = tmp_path / "server.pem"
    bad = tmp_path / "bad.pem"
    for content in ("", "no certificate"):
        bad.write_text(content)
        bad.chmod(0o600)
        with pytest.raises(OperationError, match="bad.pem cannot be used"):
            Certificate(good, bad)
    bad.write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    with pytest.raises(OperationError, match="cannot be used"):
        Certificate(good, bad)
    with pytest.raises(OperationError, match="No such file"):
        Certificate(good, tmp_path / "missing")
    bad.write_bytes(encrypted(good.read_bytes()))
    with pytest.raises(OperationError, match="the key has a password"):
        Certificate(good, bad)
    good.chmod(0o604)
    with pytest.raises(OperationError, match="can be accessed by other users"):
        Certificate(good, good)


def test_an_answer_to_a_client_that_has_left_is_not_sent_as_plain_text(tmp_path: Path) -> None:
    authority = write_certificate(tmp_path, "first")
    certificate = Certificate(tmp_path / "server.pem", tmp_path / "server.pem")
    sockets: dict[int, Any] = {}
    server = create_server(lambda *_: [], sockets, host="127.0.0.1", port=0)
    ours, theirs = socket.socketpair()
    certificate.connect(server, ours, ("127.0.0.1", 0), server.adj, sockets)
    channel = next(each for each in sockets.values() if isinstance(each, TlsChannel))
    has_left = threading.Event()
    open_still: list[socket.socket] = []

    def leave() -> None:
        context = ssl.create_default_context(cafile=str(authority))
        open_still.append(context.wrap_socket(theirs, server_hostname="127.0.0.1").unwrap())
        has_left.set()

    def read() -> None:
        while channel.connected:
            channel.handle_read()

    threads = [threading.Thread(target=each, daemon=True) for each in (leave, read)]
    # Hold the lock, as a request thread does while it sends an answer. Meanwhile, the connection cannot be closed.
    with channel.outbuf_lock:
        for each in threads:
            each.start()
        assert has_left.wait(PATIENCE)
        assert channel.send(b"an answer", do_close=False) == 0
    for each in threads:
        each.join(PATIENCE)
    assert not open_still.pop().recv(100)
    server.close()
