"""The subject of a check: the collections to compare, their expected definitions, and the changes that concern it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from bson.timestamp import Timestamp

from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec
from verifier.compare.record import Side
from verifier.compare.scope import NamespacePair


@dataclass(frozen=True)
class Watched:
    """The events that a check needs from the change stream of one cluster.

    `namespaces` is the filter of the change stream: it lets all events pass that the check needs, and possibly others.
    `defined` decides for each event: it takes the name of a collection or view on this cluster, whether it exists or
    not, and returns the name on the source; None if the collection or view is not part of the check.
    """

    namespaces: NamespaceFilter
    defined: Callable[[Namespace], Namespace | None]


class Subject(Protocol):
    """The subject of a check, queried repeatedly while the check runs. Raises the driver's errors."""

    def pairs(self) -> set[NamespacePair]:
        """Return every collection and view of the check that at least one cluster has now."""

    def expected(self, source: CollectionSpec) -> CollectionSpec | None:
        """Return the definition that the destination must have now for `source`; None if it must have none."""

    def watched(self, side: Side) -> Watched: ...

    def is_settled(self) -> bool:
        """Return whether the destination is close enough to the source for another recheck to be worthwhile."""

    def later_end(self, differs: bool) -> Timestamp | None:
        """Return a later end of the writes to the source if the check must continue; None to end it with a verdict.

        Called when everything up to the present end is compared. `differs` is whether differences are left. The
        implementation may repair them before it returns.
        """
