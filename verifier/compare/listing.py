"""The collections and views of both clusters, paired by their names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from verifier.cluster.cluster import Cluster, filter_evaluator
from verifier.cluster.connect import Client
from verifier.cluster.filters import NamespaceFilter, Selection
from verifier.cluster.inventory import list_names
from verifier.cluster.namespace import RESERVED_PATTERN, Namespace, is_user_namespace
from verifier.cluster.reading import read
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.compare.record import Side
from verifier.compare.scope import NamespacePair, Scope
from verifier.compare.subject import Watched
from verifier.runtime.tasks import StopToken

_RESERVED = {"databaseRegex": {"pattern": RESERVED_PATTERN}}


class Listing:
    """The subject of the verifier's check: both clusters must have the same collections, views and documents.

    `scope` selects the namespaces, and says which names differ on the destination.
    """

    def __init__(
        self, source: Cluster, destination: Cluster, scope: Scope, stop: StopToken
    ) -> None:
        self._source = source.client
        self._destination = destination.client
        self._scope = scope
        self._stop = stop
        evaluator = filter_evaluator(source, destination)
        self._selection = Selection(scope.namespaces, evaluator.client, stop)

    def pairs(self) -> set[NamespacePair]:
        """Return every selected collection and view that at least one cluster has. Raises the driver's errors."""
        here = map(self._scope.on_source, names_on(self._destination, self._stop))
        there = names_on(self._source, self._stop)
        selected = self._selection.of({*there, *(each for each in here if each is not None)})
        return {NamespacePair(each, self._scope.on_destination(each)) for each in selected}

    def expected(self, source: CollectionSpec) -> CollectionSpec:
        """Return the definition on the source; in a view, `viewOn` is replaced by its name on the destination."""
        if source.kind is not Kind.VIEW:
            return source
        viewed = Namespace(source.namespace.database, source.options["viewOn"])
        there = self._scope.on_destination(viewed)
        return replace(source, options={**source.options, "viewOn": there.collection})

    def watched(self, side: Side) -> Watched:
        if side is Side.SOURCE:
            return Watched(without_reserved(self._scope.namespaces), self._selected)
        # The filter has names on the source, so it cannot be used on the destination if names differ.
        namespaces = NamespaceFilter() if self._scope.renamed else self._scope.namespaces
        return Watched(without_reserved(namespaces), self._selected_there)

    def is_settled(self) -> bool:
        """Return True: the verifier does not know the lag of the sync tool, so it compares without waiting."""
        return True

    def later_end(self, differs: bool) -> None:
        """Return None: the verifier repairs nothing, so the check ends at the time at which user writes ended."""

    def _selected(self, name: Namespace) -> Namespace | None:
        return name if is_user_namespace(name) and self._selection.selects(name) else None

    def _selected_there(self, name: Namespace) -> Namespace | None:
        source = self._scope.on_source(name)
        return None if source is None else self._selected(source)


def names_on(client: Client, stop: StopToken) -> Iterable[Namespace]:
    """Return the names of all collections and views of the users. Temporary errors are retried, others raised."""
    return read(partial(list_names, client), stop)


def without_reserved(namespaces: NamespaceFilter) -> NamespaceFilter:
    """Return the filter without reserved databases: the verifier's own database changes with every event it reads."""
    return NamespaceFilter(namespaces.include, (*namespaces.exclude, _RESERVED))
