"""The process of the sync service: reads the settings, serves the API, connects, and continues a saved sync.

The API is served from the beginning, even before the clusters are connected. This module creates the parts of the
process and connects them to each other; the other modules do the work.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from secrets import token_hex

from syncsvc import __version__
from syncsvc.app import create_app
from syncsvc.background.notifier import Notifier
from syncsvc.desired import Goal
from syncsvc.engine.run.points import Point
from syncsvc.reconciler import Reconciler
from syncsvc.saved.lease import HOME, LeaseKeeper
from syncsvc.schemas import StartSchema
from syncsvc.service import Service
from syncsvc.settings import (
    NO_EFFECT,
    OTHER_VARIABLES,
    PREFIX,
    PROGRAM,
    TABLE,
    Settings,
    read_settings,
)
from syncsvc.standby import Standby
from syncsvc.tuning import Tuning
from verifier.cluster import failures
from verifier.cluster.cluster import Cluster
from verifier.cluster.connection_source import files_of
from verifier.cluster.renewal import Renewal
from verifier.cluster.writer import ClusterWriter
from verifier.runtime import logs, process, waits
from verifier.runtime.errors import OperationError
from verifier.runtime.garbage import collect_rarely
from verifier.runtime.httpd import HttpServer
from verifier.runtime.malloc import keep_large_buffers
from verifier.runtime.observer import Observer, ignore
from verifier.runtime.options import refuse, warn_of_unknown_variables
from verifier.runtime.protection import Protection
from verifier.runtime.recent import RecentCommands
from verifier.runtime.schemas import load
from verifier.runtime.sites import own_names
from verifier.runtime.tasks import StopToken
from verifier.runtime.webhook import Webhook, secrets_of

LOG_FILE = "syncsvc.log"
_PROGRAM = process.Program(PROGRAM, __version__)
_LEVELS = {
    "DEBUG": "debug",
    "INFO": "info",
    "WARNING": "warn",
    "ERROR": "error",
    "CRITICAL": "fatal",
}

_log = logging.getLogger(__name__)


def main(
    arguments: Sequence[str] | None = None,
    observe: Observer = ignore,
    tuning: Tuning = Tuning(),
) -> int:
    """Run the process until a signal or an error ends it, and return its exit status.

    `arguments` are the command-line arguments; None means the arguments of this process. Only tests pass `observe`,
    which is called at named points of a sync, and `tuning`, which holds sizes and intervals. Raises SystemExit with
    status 2 if a setting is invalid.
    """
    settings = read_settings(arguments)
    goal = _goal(settings)
    keep_large_buffers()
    collect_rarely()
    return process.run(
        _PROGRAM,
        lambda: logs.set_up(
            settings.log_path, LOG_FILE, settings.verbosity, style=_style(settings)
        ),
        lambda: _serve(
            settings, goal, observe, replace(tuning, spool_limit=settings.event_spool_bytes)
        ),
    )


def _goal(settings: Settings) -> Goal | None:
    """Return the declared state and the start options of the sync; None if no state is declared.

    Raises SystemExit with status 2 if a start option is invalid.
    """
    if settings.desired_state is None:
        return None
    try:
        return Goal(settings.desired_state, load(StartSchema(), settings.start))
    except OperationError as error:
        refuse(PROGRAM, f"the file of the option startFile cannot be used: {error}")


def _style(settings: Settings) -> logs.Style:
    """Return the log style that log tools for mongosync expect: the names of log levels, and the IDs in every line."""
    ids: dict[str, str | int] = {
        "serverID": token_hex(4),
        "mongosyncID": settings.instance,
        "pid": os.getpid(),
    }
    if settings.sync_name is not None:
        ids["syncName"] = settings.sync_name
    return logs.Style(_LEVELS, ids)


def _serve(settings: Settings, goal: Goal | None, observe: Observer, tuning: Tuning) -> int:
    _log_options(settings)
    stop = StopToken()
    with ExitStack() as opened, process.main_tasks(_PROGRAM, stop) as tasks:
        webhook = _webhook(settings)
        recent = RecentCommands()
        watchers = [Notifier(webhook).watch] if webhook else []
        service = Service(
            settings.instance,
            settings.load_level,
            tasks.spawn,
            observe,
            stop,
            tuning,
            goal,
            watchers,
            settings.database,
        )
        protection = Protection(
            settings.protection, *secrets_of(webhook), *files_of(settings.sources)
        )
        # Created first, so that an address in use is reported before the process connects to any cluster.
        server = _server(settings, service, protection, recent, webhook)
        renewal = Renewal(f"syncsvc {__version__}")
        tasks.spawn("waits", waits.watch, service.each_second, stop.sleep)
        initialize = partial(_initialize, service, settings, observe, opened, tuning, tasks.stop)
        tasks.spawn("initialize", initialize, renewal)
        if any(each.may_change for each in settings.sources):
            tasks.spawn("credentials", renewal.run, tasks.stop)
        if webhook is not None:
            tasks.spawn("webhook", webhook.run, stop)
        if goal is not None:
            reconciler = Reconciler(service, goal, recent, tuning.desired_retry)
            tasks.spawn("desired state", reconciler.run, tasks.stop)
        _log.info("Serving.", extra={"address": settings.address, "port": settings.port})
        # Serving also ends if a thread of the process fails: a process that cannot initialize must not serve.
        server.serve(tasks.stop, service.gate.stop_waiting, protection.reload_if_needed)
        _log.info("Stopping.")
    _log.info("Stopped.")
    return 0


def _log_options(settings: Settings) -> None:
    """Log the options in the format that log tools for mongosync read, and those that were given but have no effect.

    Also warn of environment variables that look like options, but are none.
    """
    warn_of_unknown_variables(TABLE, PREFIX, OTHER_VARIABLES)
    _log.info("Mongosync Options", extra=dict(settings.options))
    # This program has no hidden flags.
    _log.info("Mongosync HiddenFlags")
    for option in filter(settings.options.get, NO_EFFECT):
        _log.info(
            "An option was accepted only for compatibility with mongosync, and has no effect.",
            extra={"option": option},
        )


def _server(
    settings: Settings,
    service: Service,
    protection: Protection,
    recent: RecentCommands,
    webhook: Webhook | None,
) -> HttpServer:
    """Return the HTTP server, already bound to its address. Raises OperationError AddressNotAvailable."""
    names = own_names(settings.address, settings.allowed_hosts)
    app = create_app(service, names, protection.tokens, recent, webhook)
    return HttpServer(app, settings.address, settings.port, protection.certificate)


def _webhook(settings: Settings) -> Webhook | None:
    if settings.webhook is None:
        return None
    return Webhook(settings.webhook, program="syncsvc", instance=settings.instance)


def _initialize(
    service: Service,
    settings: Settings,
    observe: Observer,
    opened: ExitStack,
    tuning: Tuning,
    stop: StopToken,
    renewal: Renewal,
) -> None:
    """Connect to both clusters, continue the saved sync if there is one, and let `service` accept commands.

    With `--standby`, continue the saved sync each time this process becomes active, until `stop` is set. `opened`
    closes the connections when the process ends. Raises OperationError, the driver's errors, and `Cancelled`.
    """
    clusters = {}
    for name, source in settings.clusters.items():
        service.gate.startup.step = f"connecting to {name}"
        clusters[name] = renewal.open_cluster(source)
        opened.callback(clusters[name].client.close)
    service.connect(clusters)
    service.gate.startup.step = "reading the saved sync"
    observe(Point.CONNECTED, "")
    with failures.named_errors():
        if settings.standby:
            keeper = partial(_keeper, clusters[HOME], settings, tuning, stop)
            Standby(service, clusters, keeper, tuning, observe).run(stop)
        else:
            service.initialize(service.find_run(clusters))


def _keeper(home: Cluster, settings: Settings, tuning: Tuning, stop: StopToken) -> LeaseKeeper:
    writer = ClusterWriter(home.client, home.facts.access_control, stop)
    name = f"[{settings.address}]" if ":" in settings.address else settings.address
    address = f"{name}:{settings.port}"
    host = socket.gethostname()
    metadata = home.client[settings.database]
    return LeaseKeeper(metadata, writer, settings.instance, host, address, tuning.lease_seconds)
