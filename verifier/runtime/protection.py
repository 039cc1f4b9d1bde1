"""Options that protect the HTTP API: tokens and TLS.

If tokens or TLS are missing, the API may only listen on a loopback address, unless `insecureRemote` is given.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any, Protocol

from verifier.runtime.access import TokenFile
from verifier.runtime.errors import OperationError
from verifier.runtime.options import Form, Option
from verifier.runtime.sites import is_loopback
from verifier.runtime.tls import Certificate

OPTIONS = (
    Option(
        "tokenFile",
        "file with the tokens that requests must carry, and their roles; without this file, the API has no access "
        "control",
        value="FILE",
    ),
    Option(
        "tlsCertFile",
        "PEM file with the certificate of the API and its chain; the API then uses HTTPS, and tlsKeyFile is required",
        value="FILE",
    ),
    Option("tlsKeyFile", "PEM file with the private key of tlsCertFile", value="FILE"),
    Option(
        "insecureRemote",
        "do not require tokenFile, tlsCertFile and tlsKeyFile for a bindAddress that is not loopback. "
        "WARNING: without tokens, anyone who reaches the port controls the process",
        form=Form.FLAG,
    ),
)

# How often the files of the certificate are checked for changes, in seconds.
_CHECK_INTERVAL = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProtectionOptions:
    """The files with the tokens, the certificate and its key. `certificate` and `key` are both set or both None.

    `exposed` is the address of the API if other hosts reach it without tokens or TLS, because insecureRemote allows it.
    """

    token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    exposed: str | None = None


def read_options(values: Mapping[str, Any]) -> ProtectionOptions:
    """Return the protection that the values of all options select.

    Raise ValueError if the address is not loopback, but tokens or TLS are missing and `insecureRemote` is not given.
    Also raise ValueError if only one of `tlsCertFile` and `tlsKeyFile` is given.
    """
    token_file, certificate, key = (
        Path(values[name]) if values[name] else None
        for name in ("tokenFile", "tlsCertFile", "tlsKeyFile")
    )
    if (certificate is None) != (key is None):
        raise ValueError("tlsCertFile and tlsKeyFile need each other: give both, or neither")
    address = values["bindAddress"]
    protected = token_file is not None and certificate is not None
    exposed = not protected and not is_loopback(address)
    if exposed and not values["insecureRemote"]:
        raise ValueError(
            f"bindAddress {address!r} is not a loopback address, so other machines can reach this process. "
            "Give tokenFile, tlsCertFile and tlsKeyFile, or use 127.0.0.1 and an SSH tunnel. insecureRemote allows the "
            "address without these files"
        )
    return ProtectionOptions(token_file, certificate, key, address if exposed else None)


class Reloadable(Protocol):
    """The content of a file. `reload` reads the file again, or raises OperationError and keeps the old content."""

    @property
    def name(self) -> str: ...

    def reload(self) -> None: ...


class Protection:
    """The tokens, the certificate and other secret files of this process.

    The owner must call `reload_if_needed` repeatedly: it reads the files again when necessary.

    Raises OperationError if the tokens or the certificate cannot be used. Create this object in the main thread, to
    which Python delivers signals.
    """

    def __init__(self, options: ProtectionOptions, *others: Reloadable) -> None:
        self.tokens = TokenFile(options.token_file) if options.token_file else None
        self.certificate = (
            Certificate(options.certificate, options.key)
            if options.certificate and options.key
            else None
        )
        own = (each for each in (self.tokens, self.certificate) if each is not None)
        self._files: list[Reloadable] = [*own, *others]
        self._reload_requested = False
        self._next_check = 0.0
        if options.exposed is not None:
            _warn_of_exposure(options)
        if self._files:
            signal.signal(signal.SIGHUP, self._request_reload)

    def reload_if_needed(self) -> None:
        """Read all files again after a SIGHUP, and the certificate and its key if they have changed.

        If a file cannot be used, keep its former content and log an error. May be called often: the certificate is
        checked every few seconds only.
        """
        if self._reload_requested:
            self._reload_requested = False
            _reload(self._files)
        elif self.certificate is not None and self._is_check_due() and self.certificate.is_outdated:
            _reload([self.certificate])

    def _is_check_due(self) -> bool:
        """Return whether to check the files of the certificate now. True at most once in five seconds."""
        now = monotonic()
        if now < self._next_check:
            return False
        self._next_check = now + _CHECK_INTERVAL
        return True

    def _request_reload(self, number: int, frame: FrameType | None) -> None:
        self._reload_requested = True


def _reload(files: Iterable[Reloadable]) -> None:
    for each in files:
        try:
            each.reload()
            _log.info(
                "Reloaded a file with tokens, a certificate, a connection string or a secret.",
                extra={"file": each.name},
            )
        except OperationError as error:
            _log.error(
                "Could not reload a file with tokens, a certificate, a connection string or a secret; the process "
                "keeps using the former content. Correct the file. A certificate or connection string is then used "
                "within seconds; for tokens and the secret of a webhook, send SIGHUP again.",
                extra={"file": each.name, "error": f"{error.kind.name}: {error}"},
            )


def _warn_of_exposure(options: ProtectionOptions) -> None:
    lacks = {
        "tokenFile": "anyone who reaches the port controls this process",
        "tlsCertFile": "requests, with their tokens, and answers can be read on the network",
    }
    given = {"tokenFile": options.token_file, "tlsCertFile": options.certificate}
    missing = [f"without {name}, {lacks[name]}" for name, file in given.items() if file is None]
    _log.warning(
        "insecureRemote is in force: other hosts reach the API without tokens or without TLS. Give tokenFile, "
        "tlsCertFile and tlsKeyFile, or listen on 127.0.0.1 and use an SSH tunnel.",
        extra={"address": options.exposed, "danger": "; ".join(missing)},
    )
