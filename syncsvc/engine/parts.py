"""What the phases of one run work with. Frozen: who gets it may use the parts, not change them for others."""

from __future__ import annotations

from dataclasses import dataclass

from syncsvc.engine.destination import Destination
from syncsvc.engine.observe import Observer
from syncsvc.progress import Progress
from syncsvc.settings import LoadLevel
from syncsvc.store import Registry, RunStore
from syncsvc.writer import ClusterWriter
from verifier.cluster.connect import Client


@dataclass(frozen=True)
class Parts:
    """`client` reads the destination, `writer` and `destination` write it; `run` and `registry` are what is saved."""

    source: Client
    client: Client
    writer: ClusterWriter
    destination: Destination
    run: RunStore
    registry: Registry
    progress: Progress
    load: LoadLevel
    observe: Observer
