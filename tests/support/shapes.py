"""Syncs whose destination must differ from the source: by new names, selected documents or foreign collections.

Shares no code with the product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pymongo.errors import CollectionInvalid

from syncsvc.sandbox.equality import compare_clusters
from tests.support import renamed
from tests.support.pair import Pair

_SUFFIX = "_new"
# The foreign collection of each database, and its only document.
_FOREIGN = "foreign"
_DOCUMENT = {"_id": "foreign"}
# This query selects about two thirds of the documents that most tests insert, and all documents without a number.
_QUERY = {"n": {"$not": {"$mod": [3, 1]}}}


@dataclass(frozen=True)
class Shape:
    """The way in which the destination of one sync must differ from the source. In this base class: not at all.

    `databases` are the databases of the sync. `collections` are the namespaces whose documents a filter can select.
    """

    databases: tuple[str, ...]
    collections: tuple[str, ...]

    @property
    def start_options(self) -> dict[str, Any]:
        return {}

    def prepare(self, pair: Pair) -> None:
        """Create the collections that must exist before the start. In this base class, there are none."""

    def differences(self, pair: Pair) -> Mapping[str, Sequence[str]]:
        """Return the differences of the destination from its expected state: sentences, by the database's source name.

        WARNING: for SELECTED, this deletes the documents on the source that the query does not select.
        """
        return pair.differences()


class _Renamed(Shape):
    @property
    def start_options(self) -> dict[str, Any]:
        return {"namespaceRemap": renamed.remap(self._new_names)}

    def differences(self, pair: Pair) -> Mapping[str, Sequence[str]]:
        found = renamed.differences(pair, self._new_names)
        return _grouped(each.replace(f"{_SUFFIX}.", ".", 1) for each in found)

    @property
    def _new_names(self) -> dict[str, str]:
        return {name: f"{name}{_SUFFIX}" for name in self.databases}


class _Selected(Shape):
    @property
    def start_options(self) -> dict[str, Any]:
        return {"documentFilter": [_element(name) for name in self.collections]}

    def prepare(self, pair: Pair) -> None:
        """Create the collections with a document filter on the source, if they do not exist."""
        for name in self.collections:
            database, _, collection = name.partition(".")
            with suppress(CollectionInvalid):
                pair.source.client[database].create_collection(collection)

    def differences(self, pair: Pair) -> Mapping[str, Sequence[str]]:
        for name in self.collections:
            database, _, collection = name.partition(".")
            pair.source.client[database][collection].delete_many({"$nor": [_QUERY]})
        return pair.differences()


class _Beside(Shape):
    @property
    def start_options(self) -> dict[str, Any]:
        return {"preExistingDestinationData": True, "enableUserWriteBlocking": "none"}

    def prepare(self, pair: Pair) -> None:
        """Create the foreign collections on the destination, each with one document."""
        for name in self.databases:
            pair.destination.client[name][_FOREIGN].replace_one(_DOCUMENT, _DOCUMENT, upsert=True)

    def differences(self, pair: Pair) -> Mapping[str, Sequence[str]]:
        """Return the differences, without the foreign collections, by database.

        Fail if a foreign collection was changed.
        """
        for name in self.databases:
            found = list(pair.destination.client[name][_FOREIGN].find())
            assert found == [_DOCUMENT], f"{name}: {found}"
        clients = pair.source.client, pair.destination.client
        foreign = {f"{name}.{_FOREIGN}" for name in self.databases}
        return _grouped(compare_clusters(*clients, left_out=foreign).differences)


class Kind(Enum):
    """The ways in which the destination of a sync differs from the source.

    PLAIN: not at all. RENAMED: all databases have new names. SELECTED: a document filter selects the documents of some
    collections. BESIDE: each database also has a foreign collection.
    """

    PLAIN = Shape
    RENAMED = _Renamed
    SELECTED = _Selected
    BESIDE = _Beside

    def of(self, databases: Sequence[str], collections: Sequence[str]) -> Shape:
        """Return the shape of a sync. The parameters are those of `Shape`."""
        return self.value(tuple(databases), tuple(collections))


def _element(namespace: str) -> dict[str, Any]:
    database, _, collection = namespace.partition(".")
    return {"database": database, "collection": collection, "filter": _QUERY}


def _grouped(sentences: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for each in sentences:
        found[each.partition(".")[0]].append(each)
    return found
