"""The options of the verifier process: one table, and the frozen settings that are read from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifier import __version__
from verifier.cluster import connection_source
from verifier.cluster.connection_source import ConnectionSource
from verifier.compare.documents import Mode
from verifier.compare.scope import Scope
from verifier.runtime import protection, webhook
from verifier.runtime.logs import LEVELS
from verifier.runtime.options import Form, Option, number, parse, refuse
from verifier.runtime.protection import ProtectionOptions
from verifier.runtime.sites import ALLOWED_HOSTS
from verifier.runtime.webhook import WebhookOptions
from verifier.selection import read_scope

PROGRAM = "syncsvc-verifier"
PREFIX = "SYNCSVC_VERIFIER"

# Also accept the name that migration-verifier uses for IGNORE_FIELD_ORDER.
_METHODS = {**{mode.value: mode for mode in Mode}, "ignoreOrder": Mode.IGNORE_FIELD_ORDER}

TABLE = (
    *connection_source.options("srcURI", "the source"),
    *connection_source.options("destURI", "the destination", aliases=("dstURI",)),
    *connection_source.options(
        "metaURI",
        "the cluster that stores the state of the check: MongoDB 6.0 or newer (by default, the destination)",
    ),
    Option("verifyAll", "check all user databases", form=Form.FLAG),
    Option(
        "includeNamespaces",
        "check only the namespaces that these filters match; write the filters as in the sync service's start request",
        value="JSON",
        form=Form.JSON,
    ),
    Option(
        "excludeNamespaces",
        "skip the namespaces that these filters match",
        value="JSON",
        form=Form.JSON,
    ),
    Option(
        "srcNamespace",
        "check only these collections (database.collection) or databases, by their names on the source; "
        "repeat the option or separate the names by commas",
        value="NAME",
        form=Form.LIST,
    ),
    Option(
        "dstNamespace",
        "names that the collections or databases of srcNamespace have on the destination, in the same order; by "
        "default, the names are the same",
        value="NAME",
        form=Form.LIST,
    ),
    Option(
        "docCompareMethod",
        "how documents are compared: binary (byte by byte), or ignoreFieldOrder (also called ignoreOrder)",
        default=Mode.BINARY.value,
        choices=tuple(_METHODS),
        value="METHOD",
    ),
    Option(
        "numWorkers",
        "number of comparison tasks that run in parallel",
        number(1, 64),
        4,
        value="NUMBER",
    ),
    Option(
        "partitionSizeMB",
        "approximate amount of a collection's data that one task compares, in MiB",
        number(1, 1024),
        64,
        value="NUMBER",
    ),
    Option(
        "graceSeconds",
        "how long differences that are left at the end of a check are rechecked before the check fails, in seconds",
        number(0, 3600),
        10,
        value="NUMBER",
    ),
    Option(
        "start",
        "start a check when the process starts, unless an unfinished check continues; needs no HTTP request",
        form=Form.FLAG,
    ),
    Option(
        "checkOnce",
        "run one check without the HTTP API while no application writes to either cluster, print the report, and "
        "exit with status 0 (passed), 1 (failed) or 2 (incomplete, or an error)",
        form=Form.FLAG,
    ),
    Option(
        "clean",
        "drop the saved state of the earlier check, even if it is not finished, when the process starts",
        form=Form.FLAG,
    ),
    Option(
        "metaDBName",
        "database that stores the state of the check; its name must begin with __mdb_internal",
        default="__mdb_internal_syncsvc_verifier",
        value="NAME",
    ),
    Option("serverPort", "port of the HTTP API", number(0, 65535), 27020, value="PORT"),
    Option("bindAddress", "address of the HTTP API", default="127.0.0.1", value="ADDRESS"),
    ALLOWED_HOSTS,
    *protection.OPTIONS,
    *webhook.OPTIONS,
    Option(
        "logPath",
        "directory of the log file; by default, the log goes to standard output, with checkOnce to standard error",
        value="DIR",
    ),
    Option(
        "verbosity",
        "lowest level that is logged: DEBUG, INFO, WARN, ERROR or FATAL",
        parse=str.upper,
        default="INFO",
        choices=LEVELS,
        value="LEVEL",
        aliases=("logLevel",),
    ),
)


_URIS = ("srcURI", "destURI", "metaURI")


@dataclass(frozen=True)
class Settings:
    """The settings of the verifier process."""

    # The cluster `metadata` stores the state of the check.
    source: ConnectionSource
    destination: ConnectionSource
    metadata: ConnectionSource
    # The database that stores the state of the check.
    metadata_database: str
    scope: Scope
    mode: Mode
    # The number of tasks that run in parallel.
    workers: int
    # How much data of a collection one task compares, in bytes.
    partition_size: int
    grace_seconds: int
    clean: bool
    start: bool
    check_once: bool
    port: int
    address: str
    allowed_hosts: tuple[str, ...]
    # The directory of the log file. Without it, the log goes to standard output, or with `check_once` to standard
    # error.
    log_path: Path | None
    verbosity: str
    protection: ProtectionOptions = ProtectionOptions()
    webhook: WebhookOptions | None = None

    @property
    def sources(self) -> list[ConnectionSource]:
        """Return the options or files with the connection strings of all clusters, without duplicates."""
        return [*dict.fromkeys((self.source, self.destination, self.metadata))]


def read_settings(arguments: Sequence[str] | None = None) -> Settings:
    """Return the settings from flags, environment and configuration file. Exit with status 2 if they are invalid."""
    values = parse(
        PROGRAM,
        __version__,
        "Compares two MongoDB clusters, while they are synced or afterwards.",
        TABLE,
        PREFIX,
        arguments,
    )
    try:
        return _settings(values)
    except ValueError as error:
        refuse(PROGRAM, str(error))


def _settings(values: Mapping[str, Any]) -> Settings:
    given = {**values, **{name: _uri(values[name]) for name in _URIS}}
    destination = connection_source.required(given, "destURI", "destination")
    return Settings(
        source=connection_source.required(given, "srcURI", "source"),
        destination=destination,
        metadata=connection_source.read_option(given, "metaURI", "metadata") or destination,
        metadata_database=values["metaDBName"],
        scope=read_scope(values),
        mode=_METHODS[values["docCompareMethod"]],
        workers=values["numWorkers"],
        partition_size=values["partitionSizeMB"] << 20,
        grace_seconds=values["graceSeconds"],
        clean=values["clean"],
        start=values["start"],
        check_once=values["checkOnce"],
        port=values["serverPort"],
        address=values["bindAddress"],
        allowed_hosts=tuple(values["allowedHosts"]),
        log_path=Path(values["logPath"]) if values["logPath"] else None,
        verbosity=values["verbosity"],
        # With checkOnce, there is no HTTP API to protect.
        protection=ProtectionOptions() if values["checkOnce"] else protection.read_options(values),
        webhook=_webhook(values),
    )


def _webhook(values: Mapping[str, Any]) -> WebhookOptions | None:
    if values["webhook"] and values["checkOnce"]:
        raise ValueError(
            "webhook cannot be combined with checkOnce, whose exit status and report show the result: remove webhook"
        )
    return webhook.read_options(values)


def _uri(text: str | None) -> str | None:
    """Return the connection string `text`; add the scheme `mongodb://` if it has no scheme."""
    return text if not text or "://" in text else f"mongodb://{text}"
