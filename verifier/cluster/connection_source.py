"""Reads the connection string of a cluster from an option, or from a private file that may be replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verifier.cluster.connect import INVALID_URI, tls_files
from verifier.runtime.errors import ErrorKind, OperationError
from verifier.runtime.files import read_private
from verifier.runtime.options import Option

INVALID_CONNECTION_FILE = ErrorKind(
    "InvalidConnectionFile",
    500,
    "A file with a connection string, or a file that a connection string names, cannot be used.",
    "A file with a connection string must contain only the connection string, and only its owner may have access "
    "(mode 0600; if root owns the file, its group may read it). While the process runs, only the password and the TLS "
    "files may change, and a new certificate must be for the same user.",
)


_SCHEMES = ("mongodb://", "mongodb+srv://")


@dataclass(frozen=True)
class Credentials:
    """A connection string, and the contents of the TLS files that it names."""

    uri: str = field(repr=False)
    files: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True)
class ConnectionSource:
    """The source of a cluster's connection string: the value of an option (`text`), or a file (`path`).

    `cluster` is the operator's name for the cluster.
    """

    cluster: str = field(compare=False)
    text: str = field(default="", repr=False)
    path: Path | None = None

    @property
    def may_change(self) -> bool:
        """Return whether credentials can be renewed: the connection string is in a file, or it names TLS files."""
        return self.path is not None or bool(tls_files(self.text))

    @property
    def name(self) -> str:
        return str(self.path)

    def read(self) -> Credentials:
        """Read the files, and return the current credentials.

        Raises OperationError: InvalidConnectionFile, or InvalidURI if a TLS file cannot be read.
        """
        uri = self._uri()
        try:
            return Credentials(uri, tuple(Path(each).read_bytes() for each in tls_files(uri)))
        except (OSError, ValueError) as error:
            text = f"{self.cluster}: a TLS file of the connection string cannot be read: {error}."
            raise OperationError(INVALID_URI, text) from error

    def reload(self) -> None:
        """Read the files only to check them. Raise OperationError if a file cannot be used.

        The class `Renewal` reads the files again, and applies new credentials.
        """
        self.read()

    def _uri(self) -> str:
        if self.path is None:
            return self.text
        try:
            lines = read_private(self.path).decode().split()
            if len(lines) != 1:
                found = f"contains {len(lines)} words" if lines else "is empty"
                raise ValueError(f"the file must contain only the connection string, but {found}")
        except UnicodeDecodeError as error:
            raise self._refusal("the file is not text in UTF-8") from error
        except ValueError as error:
            raise self._refusal(str(error)) from error
        return lines[0]

    def _refusal(self, reason: str) -> OperationError:
        text = f"{self.cluster}: the connection file {self.path} cannot be used: {reason}."
        return OperationError(INVALID_CONNECTION_FILE, text)


def files_of(sources: Iterable[ConnectionSource]) -> list[ConnectionSource]:
    """Return the `sources` whose connection string is in a file."""
    return [each for each in sources if each.path is not None]


def options(name: str, meaning: str, aliases: tuple[str, ...] = ()) -> tuple[Option, Option]:
    """Return two options: one for a connection string, and one for a file that holds the connection string.

    `meaning` names the cluster in the help text. `aliases` are other names of the first option.
    """
    return (
        Option(name, f"connection string of {meaning}", value="URI", aliases=aliases),
        Option(
            f"{name}File",
            f"file with the connection string, as an alternative to {name}; a new password in the file is used "
            "without a restart",
            value="FILE",
        ),
    )


def read_option(
    values: Mapping[str, Any], option: str, cluster: str | None = None
) -> ConnectionSource | None:
    """Return the source of a connection string: `option`, or the option with the suffix `File`, which names a file.

    `values` maps the names of options to their values. Return None if neither option is given; raise ValueError if both
    are given. `cluster` is the operator's name for the cluster; by default, it is the name of the option.
    """
    text, path = values[option], values[f"{option}File"]
    if text and path:
        raise ValueError(f"{option} and {option}File cannot be combined: give only one of them")
    if not text and not path:
        return None
    return ConnectionSource(cluster or option, text or "", Path(path) if path else None)


def required(
    values: Mapping[str, Any], option: str, cluster: str | None = None
) -> ConnectionSource:
    """Return the source of a connection string: `option`, or the option with the suffix `File`, which names a file.

    `values` maps the names of options to their values. Raises ValueError if neither or both of the options are given.
    `cluster` is the operator's name for the cluster; by default, it is the name of the option.
    """
    found = read_option(values, option, cluster)
    if found is None:
        raise ValueError(f"--{option} or --{option}File must be given")
    return found


def loggable(uri: str | None) -> str | None:
    """Return a connection string for the log, without credentials if its scheme is missing or misspelled.

    The log itself redacts the credentials of valid connection strings.
    """
    if uri is None or "@" not in uri or uri.lower().startswith(_SCHEMES):
        return uri
    return f"<redacted>@{uri.rpartition('@')[2]}"
