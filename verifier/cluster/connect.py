"""Opens clients with fixed settings. The only module that parses connection strings."""

from __future__ import annotations

from typing import Any

from pymongo import MongoClient
from pymongo.errors import InvalidURI, PyMongoError
from pymongo.read_preferences import ReadPreference
from pymongo.uri_parser import parse_uri

from verifier.cluster import pinning
from verifier.cluster.calls import CallListener
from verifier.runtime.errors import ErrorKind, OperationError

Client = MongoClient[dict[str, Any]]

INVALID_URI = ErrorKind(
    "InvalidURI",
    400,
    "A connection string cannot be used.",
    "Correct the connection string.",
)

# How long a call waits for a primary before it fails and the retry function takes over, in milliseconds.
_SELECTION_MS = 10_000
# How long a connection attempt may take, and how long a call waits for bytes from a server, in milliseconds. A call
# that takes longer fails and is retried, so that a half-open connection, on which nothing arrives any more, blocks
# nothing forever. All our commands may be repeated: one that still runs on the server, such as an index build, is
# joined, or is a no-op the second time.
_CONNECT_MS = 10_000
SOCKET_MS = 60_000
# Exceptions of the driver for options that it refuses or cannot handle.
_DRIVER_ERRORS = (PyMongoError, ValueError, TypeError, KeyError, OSError)
_SELECTION = "serverSelectionTimeoutMS"
# How many connections to a server are opened at the same time. With the driver's default of two, the threads of a sync
# wait for seconds on a link with latency, because a new connection takes several round trips.
_CONNECTING = 16


def _concern_violations(options: dict[str, Any]) -> list[str]:
    violations = []
    if options.get("readConcernLevel", "majority") != "majority":
        violations.append("Invalid URI option, read concern must be majority")
    if options.get("w", "majority") != "majority":
        violations.append("Invalid URI option, write concern must be majority")
    if str(options.get("readPreference", "primary")).lower() != "primary":
        violations.append("Invalid URI option, read preference must be primary")
    given = {name.lower() for name in options}
    for name in ("socketTimeoutMS", "timeoutMS"):
        if name.lower() in given:
            violations.append(f"Invalid URI option, {name} must not be set")
    return violations


def check_uri(uri: str) -> dict[str, Any]:
    """Return the options of a connection string by name.

    Raises OperationError InvalidURI, naming every violation, if it cannot be used.
    """
    try:
        parsed = parse_uri(uri, validate=True, warn=False, normalize=True)
    except _DRIVER_ERRORS as error:
        raise _refusal(uri, error) from error
    if "@" in (parsed["database"] or ""):
        # The driver mistakes a slash in a password for the end of the host.
        raise _refusal(uri, InvalidURI())
    options = {**parsed["options"]}
    violations = _concern_violations(options)
    if violations:
        raise OperationError(INVALID_URI, "; ".join(violations) + ".")
    return options


def connect(
    uri: str, application: str, name: str = "cluster", socket_ms: int | None = None
) -> Client:
    """Return a client that reads from the primary, or from the member that `verifier.cluster.pinning` selects.

    Read and write concern are majority. A call fails if it waits longer than `socket_ms` milliseconds (default:
    `SOCKET_MS`) for bytes from a server. `name` is the operator's name for the cluster. Does not wait for a connection.
    Raises OperationError InvalidURI.
    """
    options = check_uri(uri)
    # The connection string has precedence. The driver's own defaults are too long, and its reads have no timeout.
    ours = {
        _SELECTION: _SELECTION_MS,
        "connectTimeoutMS": _CONNECT_MS,
        "maxConnecting": _CONNECTING,
    }
    given: dict[str, Any] = {each: value for each, value in ours.items() if each not in options}
    try:
        return MongoClient(
            uri,
            appname=application,
            readConcernLevel="majority",
            w="majority",
            read_preference=ReadPreference.PRIMARY,
            uuidRepresentation="unspecified",
            datetime_conversion="DATETIME_AUTO",
            socketTimeoutMS=SOCKET_MS if socket_ms is None else socket_ms,
            event_listeners=[CallListener(name)],
            server_selector=pinning.select,
            **given,
        )
    except _DRIVER_ERRORS as error:
        raise _refusal(uri, error) from error


def discard_connections(client: Client) -> None:
    """Make later calls of a client open new connections; calls in flight keep theirs until they end."""
    # The driver has no public call for this.
    for server in list(client._topology._servers.values()):
        server.pool.reset_without_pause()


def _refusal(uri: str, error: Exception) -> OperationError:
    text = str(error)
    before_host = uri.partition("://")[2].rpartition("@")[0]
    if before_host and (isinstance(error, InvalidURI) or {*"/?"} & {*before_host}):
        # The driver quotes what it parsed as a host, database or option, which can be a part of the password.
        text = "it cannot be parsed; user name and password must be percent-encoded (RFC 3986)"
    return OperationError(INVALID_URI, f"The connection string is refused: {text.rstrip('.?')}.")
