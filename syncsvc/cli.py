"""The process: reads the settings, connects, recovers, serves. Wires the real parts; decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from syncsvc import __version__
from syncsvc.app import create_app
from syncsvc.engine.observe import Observer, ignore
from syncsvc.service import Service
from syncsvc.settings import Settings, read_settings
from verifier.cluster.cluster import open_cluster
from verifier.runtime import logs, process
from verifier.runtime.httpd import HttpServer
from verifier.runtime.malloc import keep_large_buffers
from verifier.runtime.tasks import Cancelled, StopToken, TaskGroup

LOG_FILE = "syncsvc.log"

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None, observe: Observer = ignore) -> int:
    """Run the process until a signal ends it; its exit status."""
    settings = read_settings(arguments)
    keep_large_buffers()
    return process.run(
        "syncsvc",
        __version__,
        lambda: logs.set_up(settings.log_path, LOG_FILE, settings.verbosity),
        lambda: _serve(settings, observe),
    )


def _serve(settings: Settings, observe: Observer) -> int:
    stop = StopToken()
    application = f"syncsvc {__version__}"
    clusters = {
        name: open_cluster(name, uri, application) for name, uri in settings.clusters.items()
    }
    try:
        with TaskGroup("main", stop) as tasks:
            service = Service(
                clusters, settings.instance, settings.load_level, tasks.spawn, observe, stop
            )
            server = HttpServer(create_app(service), settings.address, settings.port)
            try:
                service.recover()
                _log.info("Serving.", extra={"address": settings.address, "port": settings.port})
                server.serve()
                _log.info("Stopping.")
            finally:
                # However the block is left, the run must learn of it, or its thread would never be joined.
                stop.stop("shutdown")
    except Cancelled:
        pass
    finally:
        for cluster in clusters.values():
            cluster.client.close()
    _log.info("Stopped.")
    return 0
