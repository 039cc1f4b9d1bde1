"""Creates the context of a new engine (the object whose threads run a sync) from the saved run record.

Before that, every cluster to which the engine writes documents or metadata is made to refuse the late writes of earlier
engines.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from time import time

from pymongo.errors import OperationFailure

from syncsvc.engine.run.balancers import Balancer
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.document_writer import DocumentWriter
from syncsvc.engine.run.instances import Instances
from syncsvc.engine.run.writeblock import WriteBlock
from syncsvc.metadata import Metadata
from syncsvc.reports.dashboards import documents
from syncsvc.rules.taken_names import foreign_error
from syncsvc.running.process import ProcessContext
from syncsvc.saved import dashboards
from syncsvc.saved.created_principals import CreatedPrincipals
from syncsvc.saved.emptying import forget_earlier
from syncsvc.saved.fence import Fence, FencedWriter
from syncsvc.saved.journal import Site
from syncsvc.saved.partitions import Partitions
from syncsvc.saved.peers import Peers
from syncsvc.saved.registry import Registry
from syncsvc.saved.repairs import Repairs
from syncsvc.saved.run import RunRecord
from syncsvc.saved.run_store import RunStore
from syncsvc.saved.spool import Spool
from syncsvc.saved.views import CreatedViews
from syncsvc.state import Phase, State
from syncsvc.tuning import LoadLevel
from verifier.cluster.cluster import Cluster, filter_evaluator, refreshed
from verifier.cluster.filters import Selection
from verifier.cluster.link import round_trip
from verifier.cluster.namespace import Namespace
from verifier.cluster.reading import read
from verifier.cluster.writer import ClusterWriter
from verifier.compare.store import CheckStore
from verifier.runtime.tasks import StopToken

_log = logging.getLogger(__name__)


class Assembly:
    """Creates the contexts of the engines of one run, and the objects in them, such as the write blocks.

    `store` holds the run record.
    """

    def __init__(self, store: RunStore, process: ProcessContext) -> None:
        self._store = store
        self._process = process

    def next_context(self, stop: StopToken) -> RunContext:
        """Save the next epoch, and return the context of a new engine, which the token `stop` can stop.

        When this method returns, the destination and the cluster with the metadata refuse late writes of earlier
        engines. If this instance is the coordinator and has no saved start position, also delete the saved state of an
        earlier run. Raises OperationError and the driver's errors.
        """
        # Save the epoch before using it, so that no other engine of the run has this epoch. The saved `caught_up` of an
        # earlier engine is outdated: until the new engine applies events, which may take minutes, other instances would
        # show canCommit as true.
        self._store.update(epoch=self._store.record.epoch + 1, caught_up=False)
        return self._context(stop)

    def block(self, cluster: Cluster, stop: StopToken) -> WriteBlock:
        """Return the object that blocks and unblocks user writes on a cluster. `stop` ends its calls to the cluster."""
        writer = self._writer(cluster, stop)
        sharded = cluster.facts.is_sharded
        return WriteBlock(cluster.name, sharded, writer, self._store, self._process.observe)

    def balancer(self, cluster: Cluster, stop: StopToken) -> Balancer:
        """Return the object that stops and restarts the balancer of a cluster. It does nothing on a replica set.

        The token `stop` ends the calls of the object to the cluster.
        """
        writer = self._writer(cluster, stop)
        sharded = cluster.facts.is_sharded
        return Balancer(cluster.name, sharded, writer, self._store, self._process.observe)

    def saved_registry(self) -> Registry:
        """Load the registry of the run, with the changes of all instances. Raises the driver's errors."""
        process, record = self._process, self._store.record
        metadata, writer = process.metadata(record.home), process.saver(record.home)
        return Registry(metadata, writer, record.reversals, process.stop)

    def _context(self, stop: StopToken) -> RunContext:
        process, record = self._process, self._store.record
        source, destination = self._current_clusters(stop)
        home = process.clusters[record.home]
        metadata = process.metadata(home.name)
        saving = self._fenced(home, stop)
        writer = saving if destination.name == home.name else self._fenced(destination, stop)
        if record.coordinates and record.start is None:
            # Before the start position is saved, no collection is listed, so this deletes nothing of this run.
            forget_earlier(metadata, saving, stop)
        self._insert_dashboards(saving)
        evaluator = filter_evaluator(source, destination)
        registry = Registry(metadata, saving, record.reversals, stop)
        return RunContext(
            source_client=source.client,
            source_facts=source.facts,
            destination_client=destination.client,
            destination_facts=destination.facts,
            destination_writer=writer,
            document_writer=self._document_writer(destination, writer, registry, stop),
            source_block=self.block(source, stop),
            destination_block=self.block(destination, stop),
            balancers=tuple(self.balancer(each, stop) for each in (source, destination)),
            metadata=metadata,
            run=self._store,
            instances=Instances(
                self._store, Peers(metadata, self._store), process.progress, process.tuning
            ),
            registry=registry,
            views=CreatedViews(metadata, saving, stop),
            principals=CreatedPrincipals(metadata, saving, record.reversals, stop),
            partitions=self._partitions(metadata, saving, stop),
            checks=CheckStore(home.client, saving, metadata.name, stop),
            repairs=Repairs(metadata, saving, stop),
            spool=self._spool(destination, writer, stop),
            selection=Selection(record.options.namespaces, evaluator.client, stop),
            progress=process.progress,
            load=process.load,
            threads=self._threads(source, destination, stop),
            pace=process.pace,
            tuning=process.tuning,
            observe=process.observe,
        )

    @property
    def _resets(self) -> bool:
        """Return whether a reset runs, or has failed and is now repeated or resumed."""
        record = self._store.record
        return record.state is State.RESETTING or record.phase is Phase.RESETTING

    def _current_clusters(self, stop: StopToken) -> tuple[Cluster, Cluster]:
        """Return the source and the destination with their current facts, because servers may have been upgraded.

        During a reset, the source keeps its earlier facts: a reset must not depend on a source that is gone for good.
        Otherwise, log a warning if the version of a cluster has changed since the sync was started.
        """
        record, clusters = self._store.record, self._process.clusters
        source = clusters[record.source]
        destination = read(partial(refreshed, clusters[record.destination]), stop)
        if self._resets:
            return source, destination
        source = read(partial(refreshed, source), stop)
        for name, before, now in new_versions(record.journal.sites, (source, destination)):
            _log.warning(
                "The version of a cluster has changed since the sync was started. This process uses the features of "
                "the new version.",
                extra={"cluster": name, "before": before, "now": now},
            )
        return source, destination

    def _document_writer(
        self, destination: Cluster, writer: FencedWriter, registry: Registry, stop: StopToken
    ) -> DocumentWriter:
        uuid_of = partial(own_uuid, self._store.record, destination.facts.is_sharded, registry)
        return DocumentWriter(writer, self._process.tuning.sending_bytes, stop, uuid_of)

    def _insert_dashboards(self, writer: FencedWriter) -> None:
        """Insert the documents that dashboards for mongosync read. A thread updates the documents later.

        An insert that the server refuses is ignored. Nothing is inserted during a reset, because the coordinator may
        have dropped the metadata already.
        """
        if self._resets:
            return
        record = self._store.record
        addresses = {name: each.facts.address for name, each in self._process.clusters.items()}
        for name, document in documents(record, addresses, time()).items():
            # The thread that updates the documents warns if they do not exist.
            with suppress(OperationFailure):
                dashboards.insert(writer, self._process.database, name, document)

    def _partitions(self, metadata: Metadata, saving: FencedWriter, stop: StopToken) -> Partitions:
        record = self._store.record
        alone = not record.instances
        return Partitions(metadata, saving, record.reversals, record.instance, alone, stop)

    def _spool(self, destination: Cluster, writer: FencedWriter, stop: StopToken) -> Spool:
        record, metadata = self._store.record, self._process.metadata(destination.name)
        return Spool(metadata, writer, record.fence, record.reversals, stop)

    def _threads(self, source: Cluster, destination: Cluster, stop: StopToken) -> LoadLevel:
        """Measure the round-trip times to both clusters; return the numbers of threads for the longer time.

        A reset measures only the destination.
        """
        measured = (destination,) if self._resets else (source, destination)
        longest = max(round_trip(each.client, stop) for each in measured)
        threads = self._process.load.over(longest)
        _log.info(
            "Chose the numbers of threads according to the round-trip time to the clusters.",
            extra={"seconds": round(longest, 3), **asdict(threads)},
        )
        return threads

    def _fenced(self, cluster: Cluster, stop: StopToken) -> FencedWriter:
        """Return a new engine's writer to a cluster.

        Before that, make the cluster refuse late writes of earlier engines, and kill their DDL commands, except index
        builds.
        """
        facts = cluster.facts
        record = self._store.record
        fence = Fence(record.fence, record.epoch)
        writer = FencedWriter(
            cluster.client,
            facts.access_control,
            stop,
            fence,
            self._process.database,
            facts.is_sharded,
            self._store.confirm,
        )
        writer.settle()
        writer.end_definitions(cluster.name)
        return writer

    def _writer(self, cluster: Cluster, stop: StopToken) -> ClusterWriter:
        """Return a writer that writes only while this process owns the run."""
        access_control = cluster.facts.access_control
        return ClusterWriter(cluster.client, access_control, stop, self._store.confirm)


def own_uuid(record: RunRecord, sharded: bool, registry: Registry, name: Namespace) -> bytes | None:
    """Return the UUID of the collection `name` on the destination, which each write to the collection must include.

    With this UUID, servers refuse to write to a foreign collection. Return None if writes include no UUID: if the
    option `preExistingDestinationData` is false, if the registry has no such collection, if the destination is sharded
    (`sharded`), or if `name` is the buckets of a time-series collection, whose UUID servers do not accept. Raises
    OperationError DestinationNamespaceExists if the sync has not created the collection: then a foreign collection has
    its name.
    """
    if not record.options.pre_existing_destination_data:
        return None
    found = registry.at(name.owner)
    if found is None:
        return None
    if found.destination_uuid is None:
        raise foreign_error(name.owner)
    return None if sharded or name != name.owner else found.destination_uuid


def new_versions(
    sites: Iterable[Site], clusters: Iterable[Cluster]
) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the saved version and the current version of each cluster whose version has changed.

    `sites` are the clusters as they were when the sync was started.
    """
    current = {each.name: each.facts.dotted_version for each in clusters}
    for site in sites:
        now = current.get(site.name, site.version)
        if now != site.version:
            yield site.name, site.version, now
