"""Variants of a sync: three values of `buildIndexes`, for collections with ten secondary indexes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymongo import IndexModel

from syncsvc.sandbox.replica_set import Client
from tests.bench.data import DATABASE, DataSet
from tests.bench.variants import Variant

# The keys of the indexes; one index is multikey, and four are compound.
_KEYS: tuple[Mapping[str, int], ...] = (
    {"name": 1},
    {"price": 1},
    {"quantity": 1},
    {"sold": 1},
    {"place.x": 1},
    {"tags": 1},
    {"quantity": 1, "price": -1},
    {"name": 1, "sold": -1},
    {"place.x": 1, "place.y": 1},
    {"sold": 1, "quantity": 1, "price": 1},
)
_VALUES = ("beforeDataCopy", "afterDataCopy", "never")


def variants() -> list[Variant]:
    return [_variant(each) for each in _VALUES]


def _variant(value: str) -> Variant:
    def options(data_set: DataSet) -> dict[str, Any]:
        return {"buildIndexes": value}

    return Variant(value, prepare=_create_indexes, options=options)


def _create_indexes(client: Client, data_set: DataSet) -> None:
    for name in data_set.names:
        client[DATABASE][name].create_indexes([IndexModel(key) for key in _KEYS])
