"""The collections and views of both clusters, paired by their names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from bson.timestamp import Timestamp

from verifier.cluster.cluster import Cluster, filter_evaluator
from verifier.cluster.connect import Client
from verifier.cluster.filters import NamespaceFilter, Selection
from verifier.cluster.inventory import list_names
from verifier.cluster.namespace import RESERVED_PATTERN, Namespace, is_user_namespace, some_of
from verifier.cluster.namespace_map import renamed
from verifier.cluster.reading import read
from verifier.cluster.references import NotRewritable
from verifier.cluster.specification import CollectionSpec, is_undecodable, without
from verifier.compare.errors import TEXT_NOT_COMPARABLE
from verifier.compare.record import Side
from verifier.compare.scope import NamespacePair, Scope
from verifier.compare.subject import Watched
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

_RESERVED = {"databaseRegex": {"pattern": RESERVED_PATTERN}}


class Listing:
    """The subject of a check by the separate verifier: all collections and views that `scope` selects.

    Both clusters should have the same collections and views. `scope` also maps names on the source to names on the
    destination.
    """

    def __init__(
        self, source: Cluster, destination: Cluster, scope: Scope, stop: StopToken
    ) -> None:
        self._source = source.client
        self._destination = destination.client
        self._unknown_options = destination.facts.unknown_options
        self._scope = scope
        self._stop = stop
        evaluator = filter_evaluator(source, destination)
        self._selection = Selection(scope.namespaces, evaluator.client, stop)

    def pairs(self) -> set[NamespacePair]:
        """Return every selected collection and view that at least one cluster has.

        Raises OperationError TextNotComparable, the driver's errors, and `Cancelled`.
        """
        names = self._scope.names
        on_destination = map(names.to_source, names_on(self._destination, self._stop))
        on_source = names_on(self._source, self._stop)
        selected = self._selection.of({*on_source, *on_destination})
        odd = [*filter(is_undecodable, selected)]
        if odd:
            # Servers do not find a collection by its decoded name, so it would count as missing on both clusters.
            raise OperationError(TEXT_NOT_COMPARABLE, f"Names that are not UTF-8: {some_of(odd)}.")
        return {NamespacePair(each, names.to_destination(each)) for each in selected}

    def expected(self, source: CollectionSpec) -> CollectionSpec:
        """Return the definition that a collection or view must have on the destination, with its name there.

        Options that the destination no longer supports are left out. Names in the definition of a view are replaced
        as well. If not all of them can be replaced, only `viewOn` is replaced, and the definition keeps its name on the
        source. Raises OperationError TextNotComparable.
        """
        if is_undecodable((source.options, source.indexes)):
            raise OperationError(
                TEXT_NOT_COMPARABLE,
                f"{source.namespace}: a name or text in its definition is not UTF-8.",
            )
        names = self._scope.names
        source = replace(source, options=without(source.options, self._unknown_options))
        try:
            return renamed(source, names)
        except NotRewritable:
            viewed = Namespace(source.namespace.database, source.options["viewOn"])
            there = names.to_destination(viewed)
            return replace(source, options={**source.options, "viewOn": there.collection})

    def watched(self, side: Side) -> Watched:
        if side is Side.SOURCE:
            return Watched(without_reserved(self._scope.namespaces), self._selected)
        # The filter matches names on the source, so it cannot be used on the destination if namespaces are renamed.
        namespaces = NamespaceFilter() if self._scope.renamed else self._scope.namespaces
        return Watched(without_reserved(namespaces), self._selected_there)

    def is_settled(self, read_until: Timestamp) -> bool:
        """Return True, because the verifier does not know the lag of the sync tool and compares without waiting."""
        return True

    def later_end(self, differs: bool) -> None:
        """Return None: the verifier repairs nothing, so the check never moves the end of user writes."""

    def _selected(self, name: Namespace) -> Namespace | None:
        return name if is_user_namespace(name) and self._selection.selects(name) else None

    def _selected_there(self, name: Namespace) -> Namespace | None:
        return self._selected(self._scope.names.to_source(name))


def names_on(client: Client, stop: StopToken) -> Iterable[Namespace]:
    """Return the names of all user collections and views of a cluster.

    Temporary errors are retried. Raises the driver's other errors, and `Cancelled`.
    """
    return read(partial(list_names, client), stop)


def without_reserved(namespaces: NamespaceFilter) -> NamespaceFilter:
    """Return the filter extended to exclude reserved databases, such as the database of the verifier's own state."""
    return NamespaceFilter(namespaces.include, (*namespaces.exclude, _RESERVED))
