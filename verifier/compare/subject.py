"""The subject of a check: the collections and views to compare, their expected definitions, and their change events."""

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
    The function `defined` decides for each event whether the check needs it: for the name of a collection or view on
    this cluster, which need not exist, it returns the name on the source, or None if the name is not part of the check.
    It may raise the driver's errors, and `Cancelled`.
    """

    namespaces: NamespaceFilter
    defined: Callable[[Namespace], Namespace | None]
    # Whether `defined` always returns the same result for a name, so that its results may be cached.
    is_fixed: bool = True
    # Returns whether users already wait for the end of the check, so that getMores should answer sooner.
    is_awaited: Callable[[], bool] = lambda: False
    # If the primary's oplog no longer holds the needed changes: whether to wait until a member with a longer oplog is
    # the primary. If this is False, the check fails at once with OplogWindowExceeded.
    awaits_oplog: bool = True


class Subject(Protocol):
    """Supplies a check with its collections and views, their expected definitions, and the relevant change events.

    The check calls the methods from several threads, and most of them repeatedly. Every method may raise the driver's
    errors and `Cancelled`; all but `watched` and `is_settled` may also raise OperationError.
    """

    def pairs(self) -> set[NamespacePair]:
        """Return the collections and views of the check that currently exist on at least one cluster."""

    def expected(self, source: CollectionSpec) -> CollectionSpec | None:
        """Return the definition that a collection or view must have on the destination now; None if it must not exist.

        `source` is its definition on the source.
        """

    def watched(self, side: Side) -> Watched:
        """Return the events that the check needs from the change stream of the cluster `side`."""

    def is_settled(self, read_until: Timestamp) -> bool:
        """Return whether a recheck is worthwhile now: for example, not while the destination is far behind the source.

        `read_until` is the cluster time up to which the changes of the destination are read.
        """

    def later_end(self, differs: bool) -> Timestamp | None:
        """Return a later end of the writes to the source if the check must continue; None to end it with a verdict.

        The check calls this method when it has compared everything up to the current end. `differs` says whether
        differences are left. The implementation may repair them before it returns.
        """
