"""The namespaces that are compared, and their names on both clusters. The functions here have no side effects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.namespace import Namespace
from verifier.cluster.namespace_map import NamespaceMap


class NamespacePair(NamedTuple):
    """The names of one collection or view on the two clusters."""

    source: Namespace
    destination: Namespace

    @property
    def renamed_to(self) -> Namespace | None:
        """Return the name on the destination; None if it equals the name on the source."""
        return None if self.source == self.destination else self.destination


@dataclass(frozen=True)
class Scope:
    """The namespaces of a check. `namespaces` is a filter of names on the source.

    `renamed` maps names on the source to different names on the destination. A Namespace without a collection stands
    for a database with all of its collections.
    """

    namespaces: NamespaceFilter = NamespaceFilter()
    renamed: Mapping[Namespace, Namespace] = field(default_factory=dict)

    def absent(self, existing: Iterable[Namespace]) -> Iterator[str]:
        """Yield the databases and collections that the filter includes by name, but that are not among `existing`.

        `existing` are the selected namespaces that exist, by their names on the source. Patterns of the filter are
        ignored.
        """
        listed = set(existing)
        databases = {name.database for name in listed}
        for element in self.namespaces.include:
            database = element.get("database")
            if database is None:
                continue
            named = [Namespace(database, each) for each in element.get("collections", ())]
            if named:
                yield from (str(each) for each in named if each not in listed)
            elif database not in databases:
                yield database

    @cached_property
    def names(self) -> NamespaceMap:
        return NamespaceMap(self.renamed)
