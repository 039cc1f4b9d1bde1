"""What a check is about: which collections there are to compare, what each has to be, whose changes concern it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec
from verifier.compare.record import Side
from verifier.compare.scope import NamespacePair


@dataclass(frozen=True)
class Watched:
    """What the change events of one cluster are read for, in the names of that cluster.

    `namespaces` is for the server, and may let too much pass. `defined` gives the name on the source of a collection or
    view that the check is about, be it there or not; None for any other.
    """

    namespaces: NamespaceFilter
    defined: Callable[[Namespace], Namespace | None]


class Subject(Protocol):
    """Asked again and again while a check runs. Raises the driver's errors."""

    def pairs(self) -> set[NamespacePair]:
        """Every collection and view that is on one of the clusters now."""

    def expected(self, source: CollectionSpec) -> CollectionSpec | None:
        """What the destination has to have now of a collection or view of the source; None where it is to have none."""

    def watched(self, side: Side) -> Watched: ...

    def is_settled(self) -> bool:
        """Whether the destination is near enough to the source for another look at what changed to be worth it."""
