"""The resources that all runs of one process share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from syncsvc.engine.run.pace import Pace
from syncsvc.figures.progress import Progress
from syncsvc.metadata import Metadata
from syncsvc.saved.fence import Fence, FencedWriter
from syncsvc.tuning import LoadLevel, Tuning
from verifier.cluster.cluster import Cluster
from verifier.runtime.observer import Observer
from verifier.runtime.tasks import StopToken


@dataclass(frozen=True)
class ProcessContext:
    """The resources that the runs of a process share."""

    clusters: Mapping[str, Cluster]
    # The name of the metadata database.
    database: str
    load: LoadLevel
    pace: Pace
    tuning: Tuning
    progress: Progress
    # Runs a function in a thread with the given name; the process, or its term as active daemon, owns the thread.
    spawn: Callable[[str, Callable[[], None]], None]
    observe: Observer
    stop: StopToken

    def metadata(self, name: str) -> Metadata:
        """Return the metadata database on the cluster `name`."""
        return self.clusters[name].client[self.database]

    def saver(self, name: str) -> FencedWriter:
        """Return a writer to the metadata on the cluster `name`: to save the run record, and to read other metadata.

        Reads begin with an update that changes nothing. Save nothing but the run record with this writer: other
        processes do not know its sessions, so a process that takes over the run cannot make servers refuse its late
        writes. For the run record, that is safe, because each save checks the owner in the record.
        """
        cluster = self.clusters[name]
        return FencedWriter(
            cluster.client,
            cluster.facts.access_control,
            self.stop,
            Fence.of_process(),
            self.database,
            cluster.facts.is_sharded,
        )
