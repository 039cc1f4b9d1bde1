"""Tests that the verifier reports differences of many kinds exactly, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bson import SON, Binary, Int64

from syncsvc.sandbox.replica_set import Client
from tests.support.pair import Pair, started_pair
from tests.support.verifier import Verifier

# A pipeline that creates a million documents on the server.
MILLION: list[dict[str, Any]] = [
    {"$documents": [{"n": 0}]},
    {"$project": {"n": {"$range": [0, 1000]}}},
    {"$unwind": "$n"},
    {"$project": {"n": 1, "m": {"$range": [0, 1000]}}},
    {"$unwind": "$m"},
    {"$project": {"_id": {"$add": [{"$multiply": ["$n", 1000]}, "$m"]}, "bits": Binary(bytes(8))}},
    {"$out": {"db": "d", "coll": "million"}},
]
USUAL: SON[str, Any] = SON(n=1, sub=SON(a=[1, {"b": 2}], c="text"))


def _fill(client: Client) -> None:
    client.admin.aggregate(MILLION)
    client.d.documents.insert_many({"_id": number, **USUAL} for number in range(3000))
    for name in ("indexed", "validated", "capped", "missing"):
        chosen: dict[str, dict[str, Any]] = {
            "capped": {"capped": True, "size": 1 << 20},
            "validated": {
                "validator": {"a": {"$gte": 0}},
                "validationLevel": "strict",
                "validationAction": "error",
            },
        }
        client.d.create_collection(name, **chosen.get(name, {}))
        client.d[name].insert_many({"_id": number, "a": number} for number in range(10))
    client.d.indexed.create_index("a", name="a", sparse=True)
    client.d.indexed.create_index("b", name="b")
    client.d.create_collection("view", viewOn="documents", pipeline=[{"$match": {"n": 1}}])
    client.d.create_collection("other", viewOn="documents")
    client.e.create_collection("collated", collation={"locale": "en", "strength": 2})
    client.e.collated.insert_many({"_id": name} for name in "abc")
    client.e.command({"create": "clustered", "clusteredIndex": {"key": {"_id": 1}, "unique": True}})
    client.e.clustered.insert_many({"_id": number} for number in range(10))


def _corrupt(client: Client) -> None:
    flipped = Binary(bytes(5) + b"\x10" + bytes(2))
    client.d.million.update_one({"_id": 654_321}, {"$set": {"bits": flipped}})
    documents = client.d.documents
    documents.delete_one({"_id": 17})
    documents.insert_one({"_id": 5000, **USUAL})
    documents.insert_one({"_id": "18", **USUAL})
    documents.delete_one({"_id": 19})
    documents.insert_one({"_id": Int64(19), **USUAL})
    documents.replace_one({"_id": 20}, SON(sub=USUAL["sub"], n=1))
    documents.update_one({"_id": 21}, {"$set": {"n": Int64(1)}})
    documents.update_one({"_id": 22}, {"$set": {"sub.a.1.b": 3}, "$unset": {"sub.c": 1}})
    client.d.capped.update_one({"_id": 3}, {"$set": {"a": 4}})
    client.d.indexed.drop_index("a")
    client.d.indexed.create_index("a", name="a")
    client.d.indexed.drop_index("b")
    client.d.indexed.create_index("c", name="c")
    client.d.view.drop()
    client.d.other.drop()
    client.d.create_collection("other", viewOn="indexed")
    client.d.command({"collMod": "validated", "validator": {"a": {"$gte": -1}}})
    client.d.missing.drop()
    client.d.extra.insert_one({"_id": 1})
    client.e.collated.delete_one({"_id": "b"})
    client.e.clustered.delete_one({"_id": 5})


DOCUMENTS = [
    ("content", "d.capped", 3, "int", ["a"]),
    ("content", "d.documents", 20, "int", [""]),
    ("content", "d.documents", 21, "int", ["n"]),
    ("content", "d.documents", 22, "int", ["sub.a.1.b", "sub.c"]),
    ("content", "d.million", 654_321, "int", ["bits"]),
    ("extraOnDst", "d.documents", "18", "string", []),
    ("extraOnDst", "d.documents", 19, "long", []),
    ("extraOnDst", "d.documents", 5000, "int", []),
    ("missingOnDst", "d.documents", 17, "int", []),
    ("missingOnDst", "d.documents", 19, "int", []),
    ("missingOnDst", "e.clustered", 5, "int", []),
    ("missingOnDst", "e.collated", "b", "string", []),
]
DEFINITIONS = [
    ("content", "d.indexed", "index", "a"),
    ("content", "d.other", "spec", "viewOn"),
    ("content", "d.validated", "spec", "validator"),
    ("extraOnDst", "d.extra", "exist", ""),
    ("extraOnDst", "d.indexed", "index", "c"),
    ("missingOnDst", "d.indexed", "index", "b"),
    ("missingOnDst", "d.missing", "exist", ""),
    ("missingOnDst", "d.view", "exist", ""),
]


@pytest.fixture(scope="module")
def corrupted() -> Iterator[Pair]:
    """Start two clusters with differences of many kinds. The tests only read them."""
    with started_pair() as pair:
        for side in (pair.source, pair.destination):
            _fill(side.client)
        _corrupt(pair.destination.client)
        yield pair


@pytest.fixture(scope="module")
def verifier(corrupted: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verifier]:
    process = Verifier(
        corrupted.source.uri,
        corrupted.destination.uri,
        tmp_path_factory.mktemp("verifier"),
        *("--verifyAll", "--graceSeconds", "1"),
    )
    with process.running():
        progress = process.verify()
        assert progress["verdict"] == "failed"
        status = progress["verificationStatus"]
        assert status["failedTasks"] > status["metadataMismatchTasks"] > 0
        yield process


def test_documents_that_differ_are_named(verifier: Verifier) -> None:
    found = [
        (
            *(line[name] for name in ("type", "namespace", "_id", "idType")),
            sorted(each["path"] for each in line["fields"]),
        )
        for line in verifier.lines("docMismatches")
    ]
    assert sorted(found, key=repr) == sorted(DOCUMENTS, key=repr)


def test_definitions_that_differ_are_named(verifier: Verifier) -> None:
    assert verifier.differing_definitions() == DEFINITIONS
