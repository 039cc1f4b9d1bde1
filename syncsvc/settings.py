"""The options of the daemon in one table, and the immutable settings that are read from them.

An option can be given on the command line, as an environment variable, or in the configuration file.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncsvc import __version__
from syncsvc.desired import DesiredState
from syncsvc.metadata import (
    DEFAULT_ID,
    LONGEST_SYNC_NAME,
    SYNC_NAME_PATTERN,
    metadata_database,
)
from syncsvc.options import CLUSTERS
from syncsvc.request_file import DEFAULT_START, read_request
from syncsvc.tuning import EVENT_SPOOL_BYTES, LOAD_LEVELS, LoadLevel
from verifier.cluster import connection_source
from verifier.cluster.connection_source import ConnectionSource
from verifier.runtime import protection, webhook
from verifier.runtime.logs import LEVELS
from verifier.runtime.options import Form, Option, number, parse, refuse
from verifier.runtime.protection import ProtectionOptions
from verifier.runtime.sites import ALLOWED_HOSTS
from verifier.runtime.webhook import WebhookOptions

PROGRAM = "syncsvc"
PREFIX = "SYNCSVC"
# The beginnings of the names of environment variables of other programs: the verifier, the sandbox and the tests. The
# daemon does not warn of these variables.
OTHER_VARIABLES = tuple(
    f"{PREFIX}_{each}" for each in ("VERIFIER_", "MONGOD", "MONGOS", "CHROMIUM", "SCREENSHOTS")
)
# Options of mongosync that are accepted without effect: the function does not exist here, or is always on.
NO_EFFECT = (
    *("acceptDisclaimer", "disableTelemetry", "disableMetricsLogging"),
    "enableCappedCollectionHandling",
)
# For other options of mongosync, which this program does not have: the advice in the error message.
_INSTEAD = {
    "disableVerification": 'use {"verification": {"enabled": false}} in the start request',
    "metricsLoggingFilepath": "not available: GET /metrics has the metrics",
    "hotDocIDs": "not needed: remove it",
    "createIndexesBatchSize": "not needed: remove it; see loadLevel",
    "migrationName": "use syncName",
    "oplogRolloverResilienceIntervalSeconds": "not needed: remove it; see eventSpool in the start request",
}


def _sync_name(text: str) -> str:
    """Return `text`, the name of a sync. Raises ArgumentTypeError if the name is not allowed."""
    if not SYNC_NAME_PATTERN.fullmatch(text):
        raise ArgumentTypeError(
            f"{text!r} is not a valid sync name: use 1 to {LONGEST_SYNC_NAME} characters of a to z, digits, dashes and "
            "underscores"
        )
    return text


TABLE = (
    *connection_source.options("cluster0", "one cluster"),
    *connection_source.options("cluster1", "the other cluster"),
    Option("port", "port of the HTTP API", parse=number(0, 65535), default=27182, value="PORT"),
    Option("bindAddress", "address of the HTTP API", default="127.0.0.1", value="ADDRESS"),
    ALLOWED_HOSTS,
    *protection.OPTIONS,
    *webhook.OPTIONS,
    Option(
        "logPath",
        "directory of the log file; without this option, the log goes to standard output",
        value="DIR",
    ),
    Option(
        "verbosity",
        "lowest level of the log lines that are written",
        parse=str.upper,
        default="INFO",
        choices=LEVELS,
        value="LEVEL",
        aliases=("logLevel",),
    ),
    Option(
        "loadLevel",
        "load level from 1 to 4; at a higher level, more threads read, write and apply change events in parallel",
        parse=number(1, 4),
        default=3,
        value="LEVEL",
    ),
    Option(
        "id",
        "name of this instance. For a sharded source: with one instance, leave this option out; with several, give "
        "each the name of a different shard. For a replica-set source: any name that no other instance of the sync has",
        default=DEFAULT_ID,
        value="ID",
    ),
    Option(
        "standby",
        "run as one of several daemons with the same clusters and id, on different hosts: one daemon is active, and "
        "another one takes over if the active one fails. All these daemons must have this flag. The destination of "
        "every sync must be cluster1",
        form=Form.FLAG,
    ),
    Option(
        "syncName",
        "name of this sync, if several syncs have the same destination: at most one of these syncs may have no "
        "name, and each of them needs the start option preExistingDestinationData. "
        f"1 to {LONGEST_SYNC_NAME} characters: a to z, digits, dashes, underscores",
        parse=_sync_name,
        value="NAME",
    ),
    Option(
        "eventSpoolMB",
        "size limit of this instance's event spool on the destination, in MB; see the start option eventSpool",
        parse=number(1, 999_999_999),
        default=EVENT_SPOOL_BYTES // 1_000_000,
        value="MB",
    ),
    Option(
        "desiredState",
        "the state to which this process brings the sync: running starts it, or resumes it if it is paused; paused "
        "pauses it; committed acts like running, and commits it as soon as canCommit is true (WARNING: stop the writes "
        "to the source first). A failed sync is not resumed. Without this option, this process sends no commands by "
        "itself",
        choices=tuple(each.value for each in DesiredState),
        value="STATE",
    ),
    Option(
        "startFile",
        "YAML or JSON file with the body of the start request that desiredState sends; without this file, the sync is "
        "started with default options, from cluster0 to cluster1",
        value="FILE",
    ),
    *(
        Option(name, "accepted for compatibility with mongosync; no effect", form=Form.FLAG)
        for name in NO_EFFECT
    ),
)


@dataclass(frozen=True)
class Settings:
    clusters: dict[str, ConnectionSource]
    port: int
    address: str
    allowed_hosts: tuple[str, ...]
    log_path: Path | None
    verbosity: str
    load_level: LoadLevel
    instance: str
    # None for the sync without a name.
    sync_name: str | None = None
    standby: bool = False
    event_spool_bytes: int = EVENT_SPOOL_BYTES
    protection: ProtectionOptions = ProtectionOptions()
    # None if this process sends no commands by itself.
    desired_state: DesiredState | None = None
    # The body of the start request that the process sends because of `desired_state`.
    start: Mapping[str, Any] = field(default_factory=lambda: DEFAULT_START)
    webhook: WebhookOptions | None = None
    # The values of all options by name, for the log. The URL of the webhook is reduced to its origin.
    options: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def database(self) -> str:
        """Return the name of the metadata database."""
        return metadata_database(self.sync_name)

    @property
    def sources(self) -> list[ConnectionSource]:
        """Return where the connection string of each cluster comes from: an option or a file."""
        return [*self.clusters.values()]


def read_settings(arguments: Sequence[str] | None = None) -> Settings:
    """Return the settings from command-line flags, environment variables and the configuration file.

    `arguments` are the command-line arguments; if None, those of this process are used. Raises SystemExit with status 2
    if a setting is invalid.
    """
    values = parse(
        PROGRAM,
        __version__,
        "Syncs one MongoDB cluster to another, driven by an HTTP API.",
        TABLE,
        PREFIX,
        arguments,
        _INSTEAD,
    )
    try:
        return _settings(values)
    except ValueError as error:
        refuse(PROGRAM, str(error))


def _settings(values: Mapping[str, Any]) -> Settings:
    desired, start_file = values["desiredState"], values["startFile"]
    if start_file is not None and desired is None:
        raise ValueError(
            "--startFile has an effect only with --desiredState: set --desiredState, too, or remove --startFile"
        )
    return Settings(
        clusters={name: connection_source.required(values, name) for name in CLUSTERS},
        port=values["port"],
        address=values["bindAddress"],
        allowed_hosts=tuple(values["allowedHosts"]),
        log_path=Path(values["logPath"]) if values["logPath"] else None,
        verbosity=values["verbosity"],
        load_level=LOAD_LEVELS[values["loadLevel"]],
        instance=values["id"],
        sync_name=values["syncName"],
        standby=values["standby"],
        event_spool_bytes=values["eventSpoolMB"] * 1_000_000,
        protection=protection.read_options(values),
        desired_state=None if desired is None else DesiredState(desired),
        start=DEFAULT_START if start_file is None else read_request(Path(start_file)),
        webhook=webhook.read_options(values),
        options={
            **values,
            **{name: connection_source.loggable(values[name]) for name in CLUSTERS},
            "webhook": values["webhook"] and webhook.origin(values["webhook"]),
        },
    )
