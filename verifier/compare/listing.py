"""What there is to compare: the collections and views of both clusters, paired by their names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from verifier.cluster import failures
from verifier.cluster.cluster import Cluster, judge_of_filters
from verifier.cluster.connect import Client
from verifier.cluster.filters import NamespaceFilter, Selection
from verifier.cluster.inventory import list_names
from verifier.cluster.namespace import RESERVED_PATTERN, Namespace, is_user_namespace
from verifier.compare.recorder import Watched
from verifier.compare.scope import NamespacePair, Scope
from verifier.runtime.retry import retry
from verifier.runtime.tasks import StopToken

_RESERVED = {"databaseRegex": {"pattern": RESERVED_PATTERN}}


class Listing:
    """Pairs names as a scope wants it."""

    def __init__(
        self, source: Cluster, destination: Cluster, scope: Scope, stop: StopToken
    ) -> None:
        self._source = source.client
        self._destination = destination.client
        self._scope = scope
        self._stop = stop
        judge = judge_of_filters(source, destination)
        self._selection = Selection(scope.namespaces, judge.client, stop)

    def pairs(self) -> set[NamespacePair]:
        """Every collection and view that is on one of the clusters. Raises the driver's errors."""
        here = map(self._scope.on_source, self._names(self._destination))
        names = {*self._names(self._source), *(each for each in here if each is not None)}
        selected = self._selection.of(names)
        return {NamespacePair(each, self._scope.on_destination(each)) for each in selected}

    def on_source(self, pairs: Iterable[NamespacePair]) -> Watched:
        """What the change events of the source are read for."""
        stored = {each: each for pair in pairs for each in (pair.source, pair.source.buckets)}
        return Watched(_without_reserved(self._scope.namespaces), stored, self._selected)

    def on_destination(self, pairs: Iterable[NamespacePair]) -> Watched:
        """What the change events of the destination are read for."""
        stored = {}
        for pair in pairs:
            stored[pair.destination] = pair.source
            stored[pair.destination.buckets] = pair.source.buckets
        # The filter names databases and collections as they are called on the source.
        namespaces = NamespaceFilter() if self._scope.renamed else self._scope.namespaces
        return Watched(_without_reserved(namespaces), stored, self._selected_there)

    def _names(self, client: Client) -> Iterable[Namespace]:
        return retry(partial(list_names, client), failures.is_transient, self._stop)

    def _selected(self, name: Namespace) -> Namespace | None:
        name = name.owner
        return name if is_user_namespace(name) and self._selection.selects(name) else None

    def _selected_there(self, name: Namespace) -> Namespace | None:
        source = self._scope.on_source(name.owner)
        return None if source is None else self._selected(source)


def _without_reserved(namespaces: NamespaceFilter) -> NamespaceFilter:
    """Our own database on the destination changes with every event that is read."""
    return NamespaceFilter(namespaces.include, (*namespaces.exclude, _RESERVED))
