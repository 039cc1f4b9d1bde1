"""The process: reads the settings, connects, recovers, serves. Wires the real parts; decides nothing."""

from __future__ import annotations

import logging
import platform
import sys
from collections.abc import Sequence

from pymongo.errors import PyMongoError

from syncsvc import __version__
from syncsvc.app import create_app
from syncsvc.engine.observe import Observer, ignore
from syncsvc.errors import UNSUPPORTED_TOPOLOGY
from syncsvc.service import Cluster, Service
from syncsvc.settings import Settings, read_settings
from verifier.cluster import failures
from verifier.cluster.connect import connect
from verifier.cluster.facts import Topology, gather
from verifier.runtime import logs
from verifier.runtime.errors import OperationError
from verifier.runtime.httpd import HttpServer
from verifier.runtime.malloc import keep_large_buffers
from verifier.runtime.tasks import Cancelled, StopToken, TaskGroup

LOG_FILE = "syncsvc.log"

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None, observe: Observer = ignore) -> int:
    """Run the process until a signal ends it; its exit status."""
    settings = read_settings(arguments)
    keep_large_buffers()
    try:
        logs.set_up(settings.log_path, LOG_FILE, settings.verbosity)
        _log.info(
            "Version info", extra={"version": __version__, "python": platform.python_version()}
        )
        _serve(settings, observe)
    except (OperationError, OSError) as error:
        name = f"{error.kind.name}: " if isinstance(error, OperationError) else ""
        text = logs.redact(f"{name}{error}")
        _log.critical("The process cannot run.", extra={"error": text})
        print(f"syncsvc: {text}", file=sys.stderr)
        return 1
    return 0


def _serve(settings: Settings, observe: Observer) -> None:
    stop = StopToken()
    clusters = {name: _open(name, uri) for name, uri in settings.clusters.items()}
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


def _open(name: str, uri: str) -> Cluster:
    """Connect to a cluster and ask it for its facts. Raises OperationError."""
    try:
        client = connect(uri, f"syncsvc {__version__}")
        facts = gather(client)
    except PyMongoError as error:
        kind = failures.named_kind(error) or failures.CLUSTER_UNREACHABLE
        raise OperationError(kind, f"{name}: {failures.text_of(error)}.") from error
    except OperationError as error:
        raise OperationError(error.kind, f"{name}: {error.description}") from error
    if facts.topology is Topology.STANDALONE:
        raise OperationError(
            UNSUPPORTED_TOPOLOGY, f"{name} at {facts.address} is a standalone server."
        )
    return Cluster(name, client, facts)
