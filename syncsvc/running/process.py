"""The resources that all runs of one process share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from syncsvc.engine.run.pace import Pace
from syncsvc.figures.progress import Progress
from syncsvc.saved.fence import Fence, FencedWriter
from syncsvc.settings import LoadLevel
from syncsvc.tuning import Tuning
from verifier.cluster.cluster import Cluster
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.observer import Observer
from verifier.runtime.tasks import StopToken


@dataclass(frozen=True)
class ProcessContext:
    """The resources that the runs of a process share."""

    clusters: Mapping[str, Cluster]
    load: LoadLevel
    pace: Pace
    tuning: Tuning
    progress: Progress
    # Runs a function in a thread with the given name; the process, or its term as active daemon, owns the thread.
    spawn: Callable[[str, Callable[[], None]], None]
    observe: Observer
    stop: StopToken

    def writer(self, name: str) -> ClusterWriter:
        """Return a writer to the cluster with that name. The end of the process stops its calls; a pause does not."""
        cluster = self.clusters[name]
        return ClusterWriter(cluster.client, cluster.facts.access_control, self.stop)

    def saver(self, name: str) -> FencedWriter:
        """Return a writer for the run record on the cluster with that name.

        Its sessions are unknown to other processes, so a process that takes the run over cannot make servers refuse
        its writes. That is safe, because each save of the record checks the owner in the record.
        """
        cluster = self.clusters[name]
        return FencedWriter(
            cluster.client,
            cluster.facts.access_control,
            self.stop,
            Fence.of_process(),
            cluster.facts.is_sharded,
        )
