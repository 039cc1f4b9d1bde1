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
_FOREIGN = "foreign"
# It selects about two thirds of the documents that most tests insert, and all that have no number.
_QUERY = {"n": {"$not": {"$mod": [3, 1]}}}


class Kind(Enum):
    """The ways in which the destination of a sync differs from the source.

    PLAIN: not at all. RENAMED: all databases have new names. SELECTED: a document filter selects the documents of some
    collections. BESIDE: each database also has a foreign collection.
    """

    PLAIN = "plain"
    RENAMED = "renamed"
    SELECTED = "selected"
    BESIDE = "beside"

    def of(self, databases: Sequence[str], collections: Sequence[str]) -> Shape:
        return Shape(self, tuple(databases), tuple(collections))


@dataclass(frozen=True)
class Shape:
    """The way in which the destination of one sync must differ from the source.

    `databases` are the databases of the sync. `collections` are the namespaces whose documents are filtered if `kind`
    is SELECTED.
    """

    kind: Kind
    databases: tuple[str, ...]
    collections: tuple[str, ...]

    @property
    def start_options(self) -> dict[str, Any]:
        if self.kind is Kind.RENAMED:
            return {"namespaceRemap": renamed.remap(self._new_names)}
        if self.kind is Kind.SELECTED:
            return {"documentFilter": [_element(name) for name in self.collections]}
        if self.kind is Kind.BESIDE:
            return {"preExistingDestinationData": True, "enableUserWriteBlocking": "none"}
        return {}

    def prepare(self, pair: Pair) -> None:
        """Create what the start requires: foreign collections for BESIDE, and missing filtered ones for SELECTED."""
        if self.kind is Kind.BESIDE:
            foreign = {"_id": "foreign"}
            for name in self.databases:
                there = pair.destination.client[name][_FOREIGN]
                there.replace_one(foreign, foreign, upsert=True)
        if self.kind is Kind.SELECTED:
            for name in self.collections:
                database, _, collection = name.partition(".")
                with suppress(CollectionInvalid):
                    pair.source.client[database].create_collection(collection)

    def differences(self, pair: Pair) -> Mapping[str, Sequence[str]]:
        """Return the differences of the destination from its expected state: sentences, by the database's source name.

        WARNING: for SELECTED, this deletes the documents on the source that the query does not select.
        """
        if self.kind is Kind.RENAMED:
            found = renamed.differences(pair, self._new_names)
            return _grouped(each.replace(f"{_SUFFIX}.", ".", 1) for each in found)
        if self.kind is Kind.SELECTED:
            for name in self.collections:
                database, _, collection = name.partition(".")
                pair.source.client[database][collection].delete_many({"$nor": [_QUERY]})
        if self.kind is Kind.BESIDE:
            clients = pair.source.client, pair.destination.client
            return _grouped(compare_clusters(*clients, left_out=self._foreign(pair)).differences)
        return pair.differences()

    @property
    def _new_names(self) -> dict[str, str]:
        return {name: f"{name}{_SUFFIX}" for name in self.databases}

    def _foreign(self, pair: Pair) -> set[str]:
        """Return the names of the foreign collections. Fail if one of them was changed."""
        for name in self.databases:
            found = list(pair.destination.client[name][_FOREIGN].find())
            assert found == [{"_id": "foreign"}], f"{name}: {found}"
        return {f"{name}.{_FOREIGN}" for name in self.databases}


def _element(namespace: str) -> dict[str, Any]:
    database, _, collection = namespace.partition(".")
    return {"database": database, "collection": collection, "filter": _QUERY}


def _grouped(sentences: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for each in sentences:
        found[each.partition(".")[0]].append(each)
    return found
