"""Finds names that a sync needs, but that other collections or views on the destination have.

Also creates the errors that report these names, or a collection that users have replaced. The functions here have no
side effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from syncsvc.errors import DESTINATION_NAMESPACE_EXISTS
from verifier.cluster.namespace import Namespace, folded, some_of
from verifier.runtime.errors import OperationError, Violation


@dataclass(frozen=True)
class Taken:
    """The names that a sync needs, but that are taken: `namespaces` already exist on the destination.

    Each element of `databases` is a pair of database names: one that the sync needs, and one on the destination that
    differs only in case. Servers refuse to have both.
    """

    namespaces: tuple[Namespace, ...] = ()
    databases: tuple[tuple[str, str], ...] = ()


def taken(present: Iterable[Namespace], needed: Iterable[Namespace], sharded: bool) -> Taken:
    """Return the `needed` names that are taken.

    `present` are the collections and views on the destination that the sync did not create. `sharded` is whether the
    destination is a sharded cluster.
    """
    present, needed = {*present}, {*needed}
    by_form = {folded(each.database, sharded): each.database for each in present}
    databases = {
        (each.database, by_form[folded(each.database, sharded)])
        for each in needed
        if by_form.get(folded(each.database, sharded), each.database) != each.database
    }
    return Taken(tuple(sorted(present & needed)), tuple(sorted(databases)))


def taken_violations(found: Taken) -> Iterator[Violation]:
    """Yield one violation for all taken names of collections and views, and one for each taken name of a database."""
    if found.namespaces:
        names = some_of(found.namespaces)
        yield DESTINATION_NAMESPACE_EXISTS, f"The destination already holds {names}."
    for needed, present in found.databases:
        yield DESTINATION_NAMESPACE_EXISTS, (
            f"The sync needs the database {needed}, but the destination holds the database {present}, whose name "
            "differs only in case."
        )


def foreign_error(namespace: Namespace) -> OperationError:
    """Return the error for a name that the sync needs, but that a foreign collection or view already has.

    Foreign means: not created by this sync.
    """
    return OperationError(
        DESTINATION_NAMESPACE_EXISTS,
        f"The sync needs the name {namespace} on the destination, but a collection or view that the sync did not "
        "create already has this name.",
    )


def replaced_error(namespace: Namespace) -> OperationError:
    """Return the error for a collection that users have dropped, renamed or replaced on the destination."""
    return OperationError(
        DESTINATION_NAMESPACE_EXISTS,
        f"{namespace} on the destination is not the collection that the sync has created: a user has dropped, renamed "
        "or replaced it. If it was renamed, rename it back, and resume the sync; otherwise, reset the sync.",
    )
