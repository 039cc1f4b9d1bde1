"""The options of the verifier process: one table, and the frozen settings that are read from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifier import __version__
from verifier.compare.documents import Mode
from verifier.compare.scope import Scope
from verifier.runtime.logs import LEVELS
from verifier.runtime.options import Form, Option, number, parse, refuse
from verifier.runtime.sites import ALLOWED_HOSTS
from verifier.selection import read_scope

PROGRAM = "syncsvc-verifier"
PREFIX = "SYNCSVC_VERIFIER"

# Also accept the name that other programs have for IGNORE_FIELD_ORDER.
_METHODS = {**{mode.value: mode for mode in Mode}, "ignoreOrder": Mode.IGNORE_FIELD_ORDER}

TABLE = (
    Option("srcURI", "connection string of the source", required=True, value="URI"),
    Option(
        "destURI",
        "connection string of the destination",
        required=True,
        value="URI",
        aliases=("dstURI",),
    ),
    Option(
        "metaURI",
        "connection string of the cluster that keeps the state of the check; without it, the destination does",
        value="URI",
    ),
    Option("verifyAll", "check all databases of users", form=Form.FLAG),
    Option(
        "includeNamespaces",
        "check only what these filters name, written as in the sync service's start request",
        value="JSON",
        form=Form.JSON,
    ),
    Option(
        "excludeNamespaces",
        "leave out what these filters name",
        value="JSON",
        form=Form.JSON,
    ),
    Option(
        "srcNamespace",
        "check only these collections (database.collection) or databases, by their names on the source; "
        "repeated or separated by commas",
        value="NAME",
        form=Form.LIST,
    ),
    Option(
        "dstNamespace",
        "what each of them is called on the destination, in the same order; without it, the same",
        value="NAME",
        form=Form.LIST,
    ),
    Option(
        "docCompareMethod",
        "when two documents are equal: binary, or ignoreFieldOrder (also called ignoreOrder)",
        default=Mode.BINARY.value,
        choices=tuple(_METHODS),
        value="METHOD",
    ),
    Option("numWorkers", "how many tasks are done at once", number(1, 64), 4, value="NUMBER"),
    Option(
        "partitionSizeMB",
        "how much of a collection is one task, in megabytes",
        number(1, 1024),
        64,
        value="NUMBER",
    ),
    Option(
        "graceSeconds",
        "for how long after writesOff a difference is looked at again before it counts, in seconds",
        number(0, 3600),
        10,
        value="NUMBER",
    ),
    Option("start", "begin a check at once, without a request", form=Form.FLAG),
    Option(
        "checkOnce",
        "check without the HTTP API while nobody writes, print the report, and end: "
        "with status 0 when the check passed, 1 when it failed, 2 when it is incomplete",
        form=Form.FLAG,
    ),
    Option("clean", "drop the saved state of earlier checks first", form=Form.FLAG),
    Option(
        "metaDBName",
        "database that keeps the state of the check; its name must begin with __mdb_internal",
        default="__mdb_internal_syncsvc_verifier",
        value="NAME",
    ),
    Option("serverPort", "port of the HTTP API", number(0, 65535), 27020, value="PORT"),
    Option("bindAddress", "address of the HTTP API", default="127.0.0.1", value="ADDRESS"),
    ALLOWED_HOSTS,
    Option(
        "logPath",
        "directory of the log file; without it, the log goes to standard output, with checkOnce to standard error",
        value="DIR",
    ),
    Option(
        "verbosity",
        "least level that is logged",
        parse=str.upper,
        default="INFO",
        choices=LEVELS,
        value="LEVEL",
        aliases=("logLevel",),
    ),
)


@dataclass(frozen=True)
class Settings:
    """The settings of the process. `partition_size` is in bytes."""

    source: str
    destination: str
    metadata: str
    metadata_database: str
    scope: Scope
    mode: Mode
    workers: int
    partition_size: int
    grace_seconds: int
    clean: bool
    start: bool
    check_once: bool
    port: int
    address: str
    allowed_hosts: tuple[str, ...]
    log_path: Path | None
    verbosity: str


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
    destination = _uri(values["destURI"])
    return Settings(
        source=_uri(values["srcURI"]),
        destination=destination,
        metadata=_uri(values["metaURI"]) if values["metaURI"] else destination,
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
    )


def _uri(text: str) -> str:
    """Return the text as a connection string, adding the scheme to a plain list of hosts."""
    return text if "://" in text else f"mongodb://{text}"
