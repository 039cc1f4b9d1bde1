"""The process of the verifier: reads the settings, connects, and continues a saved check that has not ended.

The process then serves the API or, with --checkOnce, runs one check. The module `service` runs the checks.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from time import time
from types import FrameType

from verifier import __version__, errors
from verifier.announce import announce_progress, announce_report, report_lines, wait_for_end
from verifier.app import create_app
from verifier.cluster.cluster import Cluster
from verifier.cluster.connection_source import ConnectionSource, files_of
from verifier.cluster.renewal import Renewal
from verifier.compare.check_progress import Outcome, Phase
from verifier.compare.record import SentCommand
from verifier.compare.tuning import CheckTuning
from verifier.notices import Notifier
from verifier.runtime import logs, process, waits
from verifier.runtime.errors import OperationError
from verifier.runtime.garbage import collect_rarely
from verifier.runtime.httpd import HttpServer
from verifier.runtime.malloc import keep_large_buffers
from verifier.runtime.observer import Observer, ignore
from verifier.runtime.options import warn_of_unknown_variables
from verifier.runtime.protection import Protection
from verifier.runtime.sites import own_names
from verifier.runtime.tasks import StopToken
from verifier.runtime.webhook import Webhook, secrets_of
from verifier.service import Service
from verifier.settings import PREFIX, PROGRAM, TABLE, Settings, read_settings

LOG_FILE = "verifier.log"
# The sync service uses another name, because both programs may share a log directory.
AUDIT_FILE = "verifier-audit.log"

# The exit status with --checkOnce. An error that prevents a verdict makes the check incomplete.
_INCOMPLETE = 2
_STATUS = {Outcome.PASSED: 0, Outcome.FAILED: 1, Outcome.INCOMPLETE: _INCOMPLETE}

_log = logging.getLogger(__name__)


def main(
    arguments: Sequence[str] | None = None,
    observe: Observer = ignore,
    tuning: CheckTuning = CheckTuning(),
) -> int:
    """Run the process until a signal arrives or, with --checkOnce, until the check ends. Return the exit status.

    With --checkOnce, the status is 0 if the check passed, 1 if it failed, and 2 if it is incomplete or after an error,
    SIGTERM or SIGINT. Otherwise, the status is 0, or 1 after an error. Invalid options exit with status 2. If
    `arguments` is None, the arguments of the command line are used. Only tests pass `observe` and `tuning`.
    """
    settings = read_settings(arguments)
    keep_large_buffers()
    collect_rarely()
    once = settings.check_once
    if once:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _leave)
    stream = sys.stderr if once else sys.stdout
    program = process.Program(PROGRAM, __version__, _INCOMPLETE if once else 1)
    return process.run(
        program,
        lambda: logs.set_up(
            settings.log_path, LOG_FILE, settings.verbosity, stream, audit_name=AUDIT_FILE
        ),
        lambda: _run(program, settings, observe, tuning),
    )


def _run(
    program: process.Program, settings: Settings, observe: Observer, tuning: CheckTuning
) -> int:
    warn_of_unknown_variables(TABLE, PREFIX)
    # Create the webhook first, because its secret file may be invalid.
    webhook = Webhook(settings.webhook, program=PROGRAM) if settings.webhook else None
    # Do this before the clusters are opened: SIGHUP ends the process until the Protection handles that signal.
    protection = None if settings.check_once else _protection(settings, webhook)
    stop = StopToken()
    # If a check ends without a verdict, it must not count as passed.
    status = _INCOMPLETE if settings.check_once else 0
    renewal = Renewal(f"{PROGRAM} {__version__}")
    with _opened(settings, renewal) as clusters, process.main_tasks(
        program, stop, lambda: status
    ) as tasks:

        def run_and_announce(work: Callable[[], None]) -> None:
            work()
            if not settings.check_once:
                announce_report(service)

        def spawn(name: str, work: Callable[[], None]) -> None:
            tasks.spawn(name, run_and_announce, work)

        service = Service(*clusters, settings, spawn, observe, stop, tuning)
        tasks.spawn("progress", announce_progress, service, tuning.progress_interval, stop)
        watch = Notifier(webhook, service.progress).watch if webhook else _ignore_waits
        tasks.spawn("waits", waits.watch, watch, stop.sleep)
        if webhook is not None:
            tasks.spawn("webhook", webhook.run, stop)
        if any(each.may_change for each in settings.sources):
            tasks.spawn("credentials", renewal.run, stop)
        if protection is None:
            status = _check_once(service, stop)
        else:
            _serve(service, settings, webhook, protection, tasks.stop)
    _log.info("Stopped.")
    return status


def _ignore_waits(shown: tuple[waits.LongWait, ...]) -> None:
    pass


def _protection(settings: Settings, webhook: Webhook | None) -> Protection:
    return Protection(settings.protection, *secrets_of(webhook), *files_of(settings.sources))


def _serve(
    service: Service,
    settings: Settings,
    webhook: Webhook | None,
    protection: Protection,
    stop: StopToken,
) -> None:
    # Bind first, so that an address in use is reported before a saved check is continued.
    names = own_names(settings.address, settings.allowed_hosts)
    app = create_app(service, names, protection.tokens, webhook)
    server = HttpServer(app, settings.address, settings.port, protection.certificate)
    service.recover()
    if settings.start:
        _begin(service)
    _log.info("Serving.", extra={"address": settings.address, "port": settings.port})
    server.serve(stop, between=protection.reload_if_needed)
    _log.info("Stopping.")


def _check_once(service: Service, stop: StopToken) -> int:
    service.recover()
    _begin(service)
    _end_writes(service)
    verdict = wait_for_end(service, stop).verdict
    print("\n".join(report_lines(service)), flush=True)
    return _INCOMPLETE if verdict is None else _STATUS[verdict.outcome]


def _begin(service: Service) -> None:
    """Begin a check, unless a resumed check is already running."""
    if service.progress().phase is Phase.IDLE:
        service.check(None, SentCommand("check", time()))


def _end_writes(service: Service) -> None:
    try:
        service.writes_off(SentCommand("writesOff", time()))
    except OperationError as error:
        # A resumed check had already received writesOff, or the check has ended with an error, which the report shows.
        if error.kind not in (errors.WRITES_ALREADY_OFF, errors.NO_CHECK_RUNNING):
            raise


@contextmanager
def _opened(settings: Settings, renewal: Renewal) -> Iterator[tuple[Cluster, Cluster, Cluster]]:
    """Open clients for the source, the destination and the metadata cluster; close them after the block.

    `renewal` opens each client, and later renews its credentials. The metadata cluster is the destination itself if
    both have the same connection string. Raises OperationError.
    """
    with ExitStack() as stack:

        def opened(each: ConnectionSource) -> Cluster:
            cluster = renewal.open_cluster(each)
            stack.callback(cluster.client.close)
            return cluster

        source = opened(settings.source)
        destination = opened(settings.destination)
        apart = settings.metadata != settings.destination
        metadata = opened(settings.metadata) if apart else destination
        yield source, destination, metadata


def _leave(number: int, frame: FrameType | None) -> None:
    # Raise to leave a wait, as the HTTP server does. A second signal ends the process without cleanup.
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(_INCOMPLETE)
