"""Checks connection strings, opens clients for them, and replaces the credentials of open clients."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from pymongo import MongoClient
from pymongo.errors import AutoReconnect, ConfigurationError, InvalidURI, PyMongoError
from pymongo.read_preferences import ReadPreference
from pymongo.uri_parser import parse_uri, split_options

from verifier.cluster import pinning
from verifier.cluster.calls import CallListener
from verifier.runtime.errors import ErrorKind, OperationError

Client = MongoClient[dict[str, Any]]

INVALID_URI = ErrorKind(
    "InvalidURI",
    400,
    "A connection string cannot be used.",
    "Correct the connection string, or the DNS entry or file that the message names.",
)
MISSING_PACKAGE = ErrorKind(
    "MissingPackage",
    500,
    "A connection string has an option for which the driver needs a Python package that is not installed.",
    "Run the pip command of the error message in the virtual environment of this program, or change the option. "
    "Packages cannot be added to the .deb, the .rpm and the single file: install the wheel instead "
    "(docs/howto/install).",
)

# How long a call waits for a primary before it fails and the retry function takes over, in milliseconds.
_SELECTION_MS = 10_000
# How long a connection attempt may take, and how long a call waits for bytes from a server, in milliseconds. A call
# that takes longer fails and is retried, so that a half-open connection, on which nothing arrives any more, blocks
# nothing forever. All our commands may be repeated. `ClusterWriter` repeats a command that builds an index only when
# the server no longer runs it.
_CONNECT_MS = 10_000
SOCKET_MS = 60_000
# Exceptions of the driver for options that it refuses or cannot handle.
_DRIVER_ERRORS = (PyMongoError, ValueError, TypeError, KeyError, OSError)
_SELECTION = "serverSelectionTimeoutMS"
# How many connections to a server are opened at the same time. With the driver's default of two, the threads of a sync
# wait for seconds on a link with latency, because a new connection takes several round trips.
_CONNECTING = 16

# The module that the driver imports for an authentication mechanism, and the driver's extra that installs it.
# All other mechanisms need no extra package.
_MECHANISMS = {"MONGODB-AWS": ("pymongo_auth_aws", "aws"), "GSSAPI": ("kerberos", "gssapi")}
_COMPRESSORS = ("zlib", "snappy", "zstd")
# The smallest limit of connections to a server that is accepted. Each change stream uses a connection nearly all the
# time; with a single one, the other threads got too few turns to compare anything.
_LEAST_POOL = 10
# Timeouts that would make calls fail although the servers answer: on a long call, or while other threads use all
# connections.
_REFUSED = ("socketTimeoutMS", "timeoutMS", "waitQueueTimeoutMS")
# The options that may be repeated, in lower case.
_LISTS = ("readpreferencetags",)
_TLS_FILES = ("tlsCertificateKeyFile", "tlsCAFile", "tlsCRLFile")
_TLS_PASSWORD = "tlsCertificateKeyFilePassword"


def _violations(
    options: Mapping[str, Any], compressors: Sequence[str], repeated: Sequence[str]
) -> list[str]:
    violations = [f"Invalid URI option, {name} must be given only once" for name in repeated]
    if options.get("readConcernLevel", "majority") != "majority":
        violations.append("Invalid URI option, read concern must be majority")
    if options.get("w", "majority") != "majority":
        violations.append("Invalid URI option, write concern must be majority")
    if str(options.get("readPreference", "primary")).lower() != "primary":
        violations.append("Invalid URI option, read preference must be primary")
    given = {name.lower() for name in options}
    for name in _REFUSED:
        if name.lower() in given:
            violations.append(f"Invalid URI option, {name} must not be set")
    if options.get("loadBalanced", False):
        # Behind a load balancer, a client sees neither the members of a replica set nor the routers.
        violations.append("Invalid URI option, loadBalanced must be false")
    if 0 < (options.get("maxPoolSize") or 0) < _LEAST_POOL:
        violations.append(
            f"Invalid URI option, maxPoolSize must be at least {_LEAST_POOL}, or 0 for no limit"
        )
    if not {*compressors} <= {*_COMPRESSORS}:
        known = ", ".join(_COMPRESSORS)
        violations.append(f"Invalid URI option, compressors must be some of {known}")
    return violations


def _compressors(query: str) -> list[str]:
    """Return the compressors that a connection string names. `query` is the part of the string with the options.

    The driver itself only warns of a compressor that it cannot use, and leaves it out.
    """
    if not query:
        return []
    given = split_options(query, validate=False, normalize=False)
    return [each for each in str(given.get("compressors", "")).split(",") if each]


def _repeated(query: str) -> list[str]:
    """Return the options, in lower case, that a connection string contains more than once, although it must not.

    `query` is the part of the string with the options. The driver only warns of them, and uses the last value.
    """
    names = Counter(each.partition("=")[0].lower() for each in re.split("[&;]", query))
    return [each for each, times in names.items() if times > 1 and each not in _LISTS]


def _missing_extras(
    options: Mapping[str, Any], compressors: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield (option, extra) for each option that needs a missing package.

    `option` is a text such as "compressors=zstd". `extra` is the driver's extra that installs the package.
    `options` are the options that the driver accepts, and `compressors` are all compressors that the user has given.
    """
    mechanism = str(options.get("authMechanism", ""))
    module, extra = _MECHANISMS.get(mechanism, ("", ""))
    if extra and find_spec(module) is None:
        yield f"authMechanism={mechanism}", extra
    usable = options.get("compressors", ())
    for compressor in compressors:
        if compressor not in usable:
            yield f"compressors={compressor}", compressor


def check_uri(uri: str) -> dict[str, Any]:
    """Return the options of a connection string by name.

    Raises OperationError MissingPackage, or InvalidURI if the driver cannot parse the string, look up its name in DNS
    (mongodb+srv) or use one of its options, or if it contains options that this program refuses. The error names all of
    the refused options.
    """
    try:
        with warnings.catch_warnings():
            # The driver warns of compressors that are not installed, which are refused below.
            warnings.simplefilter("ignore")
            parsed = parse_uri(uri, validate=True, warn=False, normalize=True)
            query = uri.partition("?")[2]
            compressors = _compressors(query)
    except _DRIVER_ERRORS as error:
        raise _refusal(uri, error) from error
    if "@" in (parsed["database"] or ""):
        # The driver mistakes a slash in a password for the end of the host.
        raise _refusal(uri, InvalidURI())
    options = {**parsed["options"]}
    violations = _violations(options, compressors, _repeated(query))
    if violations:
        raise OperationError(INVALID_URI, "; ".join(violations) + ".")
    missing = [*_missing_extras(options, compressors)]
    if missing:
        given, extras = (",".join(each) for each in zip(*missing, strict=True))
        raise OperationError(
            MISSING_PACKAGE,
            f"Options of a connection string need Python packages that are not installed: {given}. To install these "
            f"packages, run: pip install 'pymongo[{extras}]'.",
        )
    return options


def connect(
    uri: str, application: str, name: str = "cluster", socket_ms: int | None = None
) -> Client:
    """Return a client that reads from the primary, or from the member that `verifier.cluster.pinning` selects.

    This does not wait for a connection. Read and write concern are majority. `application` is the name of this program
    in the server's log, and `name` is the operator's name for the cluster. A call fails if it waits longer than
    `socket_ms` milliseconds (default: `SOCKET_MS`) for bytes from a server. Raises OperationError: InvalidURI or
    MissingPackage.
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


def name_of(client: Client) -> str:
    """Return the operator's name for the cluster of a client; "cluster" if `connect` was given no name."""
    listeners = client.options.event_listeners
    return next((each.cluster for each in listeners if isinstance(each, CallListener)), "cluster")


def tls_hint(client: Client, error: PyMongoError) -> str:
    """Return a sentence to append to the text of a failed connection; empty unless TLS may be the cause.

    A server that does not use TLS closes a connection during the handshake, and a server that requires TLS closes
    one without it. An error about a certificate shows that the server uses TLS.
    """
    if client.options.pool_options._ssl_context is not None:
        if "SSL handshake failed" in str(error) and "certificate" not in str(error).lower():
            return (
                " The connection string requires TLS: if the servers do not use it, set tls=false."
            )
    elif "connection closed" in str(error):
        return " The connection string does not use TLS: if the servers require it, set tls=true."
    return ""


def tls_files(uri: str) -> list[str]:
    """Return the paths of the TLS files that a connection string names; empty if the string cannot be parsed."""
    try:
        given = split_options(uri.partition("?")[2], validate=False, normalize=False)
    except _DRIVER_ERRORS:
        return []
    return [str(given[name]) for name in _TLS_FILES if name in given]


def without_credentials(uri: str) -> object:
    """Return the parts of a valid connection string that must not change while a client is open.

    These are all parts except the password, the TLS files and the password of the TLS key file. Compare two
    results for equality. Raises the driver's errors if a name cannot be looked up in DNS (mongodb+srv).
    """
    parsed = parse_uri(uri, validate=True, warn=False, normalize=True)
    options = {
        name: value
        for name, value in parsed["options"].items()
        if name.lower() not in {each.lower() for each in (*_TLS_FILES, _TLS_PASSWORD)}
    }
    # With mongodb+srv, compare the DNS name: the hosts behind it may change.
    hosts = parsed.get("fqdn") or parsed["nodelist"]
    return hosts, parsed["username"], parsed["database"], options


def adopt_credentials(client: Client, trial: Client) -> None:
    """Make new connections of `client` use the password and the TLS files of `trial`.

    Connections in use stay open until their calls end. Both clients must be connected to the same cluster.
    """
    # The driver has no public call for this. The pools for commands share one object with options; each monitor has a
    # separate one. Change the shared object first: the driver creates the monitors of newly found servers from it.
    wanted, shared = trial.options.pool_options, client.options.pool_options
    pools = [pool for server in list(client._topology._servers.values()) for pool in _pools(server)]
    for pool in pools:
        # A TLS session of the old SSL context cannot be resumed in the new one.
        pool._ssl_session_cache = None
    _set_option(shared, "credentials", wanted._credentials)
    for options in (shared, *(pool.opts for pool in pools)):
        _set_option(options, "ssl_context", wanted._ssl_context)
    _discard_connections(client)


def _pools(server: Any) -> tuple[Any, Any, Any]:
    """Return the driver's three connection pools to a server: for commands, and for each of the two monitors."""
    monitor = server._monitor
    return server.pool, monitor._pool, monitor._rtt_monitor._pool


def _set_option(options: Any, name: str, value: Any) -> None:
    setattr(options, f"_PoolOptions__{name}", value)


@contextmanager
def replacing_connections(client: Client) -> Iterator[None]:
    """Make later calls open new connections if the driver refuses the session of a call in the block.

    Use this for every call with an explicit session. Raises AutoReconnect, a temporary error, in place of the refusal.
    """
    try:
        yield
    except ConfigurationError as error:
        # Nothing was sent. The connection was opened while the member was neither primary nor secondary, as in a
        # rollback. The driver never accepts sessions on it, even if the member is the primary now.
        _discard_connections(client)
        raise AutoReconnect(
            "the connection was opened while the member was neither primary nor secondary, and cannot be used "
            f"({error}); the next attempt opens a new one"
        ) from error


def _discard_connections(client: Client) -> None:
    """Make later calls of a client open new connections. Calls in flight keep their connections until they end."""
    # The driver has no public call for this.
    for server in list(client._topology._servers.values()):
        server.pool.reset_without_pause()


def _refusal(uri: str, error: Exception) -> OperationError:
    text = str(error)
    before_host = uri.partition("://")[2].rpartition("@")[0]
    if before_host and (isinstance(error, InvalidURI) or {*"/?"} & {*before_host}):
        # The driver quotes what it parsed as a host, database or option, which can be a part of the password.
        text = (
            "the string cannot be parsed; check its form: for example, user name and password must be percent-encoded "
            "(RFC 3986)"
        )
    # A hint of the driver for programmers.
    text = text.removesuffix(" Refer to docstring.")
    return OperationError(INVALID_URI, f"The connection string is refused: {text.rstrip('.?')}.")
