"""The context of a run: the clusters, saved state and settings that its phases share."""

from __future__ import annotations

from dataclasses import dataclass

from syncsvc.engine.run.balancers import Balancer
from syncsvc.engine.run.document_writer import DocumentWriter
from syncsvc.engine.run.instances import Instances
from syncsvc.engine.run.pace import Pace
from syncsvc.engine.run.writeblock import WriteBlock
from syncsvc.figures.progress import Progress
from syncsvc.metadata import Metadata
from syncsvc.rules.indexing import Target
from syncsvc.saved.created_principals import CreatedPrincipals
from syncsvc.saved.fence import FencedWriter
from syncsvc.saved.partitions import Partitions
from syncsvc.saved.registry import CollectionRecord, Registry
from syncsvc.saved.repairs import Repairs
from syncsvc.saved.run_store import RunStore
from syncsvc.saved.spool import Spool
from syncsvc.saved.views import CreatedViews
from syncsvc.state import State
from syncsvc.tuning import LoadLevel, Tuning
from verifier.cluster.connect import Client
from verifier.cluster.document_filters import DocumentFilters
from verifier.cluster.facts import ClusterFacts
from verifier.cluster.filters import Selection
from verifier.cluster.namespace_map import NamespaceMap
from verifier.compare.store import CheckStore
from verifier.runtime.observer import Observer


@dataclass(frozen=True)
class RunContext:
    """The clusters, saved state and settings of one run, which every phase gets."""

    # The clients only read, except that no-ops are appended to the oplogs.
    source_client: Client
    source_facts: ClusterFacts
    destination_client: Client
    destination_facts: ClusterFacts
    # Runs commands that change the destination.
    destination_writer: FencedWriter
    # Writes user documents on the destination.
    document_writer: DocumentWriter
    source_block: WriteBlock
    destination_block: WriteBlock
    # The balancers of the source and the destination, in this order.
    balancers: tuple[Balancer, ...]
    # The metadata database, on the cluster `RunRecord.home`.
    metadata: Metadata
    # The saved run record.
    run: RunStore
    # The other instances of the run.
    instances: Instances
    # The next seven are saved state.
    registry: Registry
    views: CreatedViews
    principals: CreatedPrincipals
    partitions: Partitions
    checks: CheckStore
    repairs: Repairs
    spool: Spool
    # The namespace filter of the sync.
    selection: Selection
    progress: Progress
    # The numbers of threads of the load level; and those for work that mostly waits for replies, which grow with the
    # round-trip time.
    load: LoadLevel
    threads: LoadLevel
    # Limits the speed of the work.
    pace: Pace
    tuning: Tuning
    observe: Observer

    @property
    def document_filters(self) -> DocumentFilters:
        return self.run.record.options.document_filters

    @property
    def target(self) -> Target:
        """Return the settings that determine how a definition of the source is changed for the destination."""
        facts = self.destination_facts
        options = self.run.record.options
        return Target(options, facts.is_sharded, self.names, facts.unknown_options)

    @property
    def names(self) -> NamespaceMap:
        """Return the map that converts namespaces between their names on the source and the destination."""
        return self.run.record.names

    @property
    def definition_threads(self) -> int:
        """Return the maximum number of threads that create collections, or change definitions, on the destination.

        Index builds after the copy have their own number. A sharded destination gets one thread, because a sharded
        cluster runs the DDL commands of one database one after the other.
        """
        return 1 if self.destination_facts.is_sharded else self.threads.writers

    @property
    def link_factor(self) -> int:
        """Return the factor by which a slow network multiplies readers, writers and lanes; 1 if the network is fast."""
        return self.threads.lanes // self.load.lanes

    def stream_wait_ms(self) -> int:
        """Return how long a getMore waits for an event of the source, in milliseconds.

        During a commit, the wait is short, because the commit repeatedly waits until the change stream is up to date.
        """
        if self.run.record.state is State.COMMITTING:
            return self.tuning.check.end_wait_ms
        return self.tuning.stream_wait_ms

    def source_uuid(self, record: CollectionRecord) -> bytes | None:
        """Return the UUID of a collection, with which reads of the source find it even after a rename.

        Return None if the source does not report all DDL events (before MongoDB 6.0): it then accepts only names.
        """
        return record.uuid if self.source_facts.reports_ddl else None
