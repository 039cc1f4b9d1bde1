"""The namespaces that are compared, and their names on the other cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.namespace import Namespace


class NamespacePair(NamedTuple):
    """The names of one collection or view on the two clusters."""

    source: Namespace
    destination: Namespace


@dataclass(frozen=True)
class Scope:
    """The namespaces of a check. `namespaces` is a filter of names on the source.

    `renamed` maps names on the source to different names on the destination. A Namespace without a collection stands
    for a database with all of its collections.
    """

    namespaces: NamespaceFilter = NamespaceFilter()
    renamed: Mapping[Namespace, Namespace] = field(default_factory=dict)

    def absent(self, there: Iterable[Namespace]) -> Iterator[str]:
        """Yield the names of databases and collections that the filter includes by name and that `there` lacks."""
        listed = set(there)
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

    def on_destination(self, source: Namespace) -> Namespace:
        """Return the name on the destination of a collection or view of the source."""
        named = self.renamed.get(source)
        if named is not None:
            return named
        database = self.renamed.get(Namespace(source.database, ""))
        return source if database is None else Namespace(database.database, source.collection)

    def on_source(self, destination: Namespace) -> Namespace | None:
        """Return the name on the source of a collection or view of the destination; None if there is no such name."""
        candidates = []
        for source, renamed in self.renamed.items():
            if renamed == destination:
                candidates.append(source)
            elif renamed == Namespace(destination.database, ""):
                candidates.append(Namespace(source.database, destination.collection))
        for source in (*candidates, destination):
            if self.on_destination(source) == destination:
                return source
        return None
