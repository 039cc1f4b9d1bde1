"""Runs syncs, and records their HTTP answers, which the contract tests compare with the documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from pymongo.errors import OperationFailure

from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox.replica_set import Client
from tests.support.daemon import Daemon
from tests.support.pair import Pair
from tests.support.verifier import Verifier

GOOD = {"source": "cluster0", "destination": "cluster1"}
_KEPT = {"admin", "config", "local", METADATA_DATABASE}

Document = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """The status and the body of an HTTP answer."""

    status: int
    body: Document

    @property
    def described(self) -> str:
        """Return the description of the error; empty if the answer reports a success."""
        return str(self.body.get("errorDescription", ""))


@dataclass(frozen=True)
class Moment:
    """The progress at one moment of a sync, and the error codes of user writes to each cluster at that moment.

    A code is None if the cluster accepted the write. `destination_refuses_index` is the code for creating an index.
    """

    progress: Document
    source_refuses: int | None
    destination_refuses: int | None
    destination_refuses_index: int | None


@dataclass(frozen=True)
class Walk:
    """The recorded moments of one sync from its start to its end.

    `indexes` contains the names of the indexes of d.c on the destination at the end.
    """

    started: Answer
    copying: Moment
    applying: Moment
    committing: Moment
    writable: Moment
    committed: Moment
    indexes: set[str]


@dataclass(frozen=True)
class Check:
    """The answers of the standalone verifier before, during and after a check that runs beside a sync.

    `state_kept_on_source` is true if the source has the verifier's database, as `--metaURI` requires.
    """

    idle: Document
    checked: Answer
    running: Document
    writes_off: Answer
    ended: Document
    summary: Document
    state_kept_on_source: bool


@dataclass(frozen=True)
class Sharded:
    """The results of three syncs from a replica set to a sharded cluster, and the answers to refused starts.

    `keys` maps the destination's collections to their shard keys after the first sync. The next three fields contain
    the names of the indexes of d.c on the destination: `served` if the source has an index that supports the shard key,
    `created` if the source has none, and `always` if `buildIndexes` is never. `renamed` is the progress after a rename
    to another database.
    """

    refused: Mapping[str, Answer]
    keys: Mapping[str, Document]
    served: set[str]
    created: set[str]
    always: set[str]
    renamed: Document


@dataclass(frozen=True)
class Seen:
    """All answers and states that the contract tests compare with the documentation."""

    addresses: tuple[str, str]
    idle: Document
    refused: Mapping[str, Answer]
    after_refusals: Document
    usual: Walk
    started_again: Answer
    check: Check
    blocking: Walk
    filtered: Document
    filtered_names: set[str]
    ttl: Document
    reversing: Answer
    reversed: Document
    sharded: Sharded


def answer_of(response: requests.Response) -> Answer:
    return Answer(response.status_code, response.json())


def _refusal(write: Callable[[], object]) -> int | None:
    try:
        write()
    except OperationFailure as error:
        return error.code
    return None


def _write(client: Client, user: str) -> None:
    """Insert a document with the `_id` `user` into d.c, and delete it again."""
    client.d.c.insert_one({"_id": user})
    client.d.c.delete_one({"_id": user})


def _build(client: Client) -> None:
    client.d.c.create_index("of a user")
    client.d.c.drop_index("of a user_1")


def fill(pair: Pair) -> None:
    pair.source.client.d.c.insert_many({"_id": n, "n": n, "pad": "p" * 500} for n in range(100))
    pair.source.client.d.c.create_index("n", unique=True)


@contextmanager
def running(pair: Pair, folder: Path) -> Iterator[Daemon]:
    """Empty the clusters, and run a daemon between them during the block; its logs are in the new `folder`."""
    pair.empty()
    folder.mkdir()
    with pair.daemon(folder).running() as daemon:
        yield daemon


def walk(pair: Pair, daemon: Daemon, options: Document, while_applying: Callable[[], None]) -> Walk:
    """Run a sync with these start options until it is COMMITTED, and return its recorded moments.

    `while_applying` is called during change event application.
    """
    source, destination = pair.source.client, pair.destination.client

    def look() -> Moment:
        return Moment(
            daemon.progress(),
            _refusal(lambda: _write(source, "of the source")),
            _refusal(lambda: _write(destination, "of the destination")),
            _refusal(lambda: _build(destination)),
        )

    prepared = (Point.STEP_DONE, "definitions prepared")
    writable = (Point.STEP_DONE, "destination writable")
    with daemon.held_at(Point.BATCH_WRITTEN):
        started = answer_of(daemon.post("start", {**GOOD, **options}))
        daemon.wait_until_reached(Point.BATCH_WRITTEN)
        in_copy = look()
    daemon.wait_until_committable()
    while_applying()
    daemon.wait_until_committable()
    in_application = look()
    with daemon.held_at(*writable):
        with daemon.held_at(*prepared):
            daemon.ask_for_commit()
            daemon.wait_until_reached(*prepared)
            in_commit = look()
        daemon.wait_until_reached(*writable)
        when_writable = look()
    daemon.wait_for_state("COMMITTED")
    indexes = set(destination.d.c.index_information())
    return Walk(started, in_copy, in_application, in_commit, when_writable, look(), indexes)


def checked_walk(pair: Pair, daemon: Daemon, folder: Path) -> tuple[Walk, Check]:
    """Run a sync, and a check by the standalone verifier beside it; return the recorded answers of both services.

    The verifier saves its state on the source, and its logs in the new `folder`.
    """
    folder.mkdir()
    verifier = Verifier(
        pair.source.uri,
        pair.destination.uri,
        folder,
        *("--verifyAll", "--metaURI", pair.source.uri, "--graceSeconds", "0"),
    )
    json = {"headers": {"Content-Type": "application/json"}}
    begun: list[Answer] = []

    def begin() -> None:
        begun.append(answer_of(verifier.post("check", {}, **json)))

    with verifier.running():
        idle = verifier.progress()
        usual = walk(pair, daemon, {}, begin)
        running = verifier.progress()
        writes_off = answer_of(verifier.post("writesOff", {}, **json))
        ended = verifier.wait_for_verdict()
        summary = verifier.get("summary").json()
        databases = pair.source.client.list_database_names()
        kept = "__mdb_internal_syncsvc_verifier" in databases
    return usual, Check(idle, begun[0], running, writes_off, ended, summary, kept)


FILTERS = {
    "includeNamespaces": [
        {"database": "all"},
        {"database": "some", "collections": ["kept"]},
        {"database": "regex", "collectionsRegex": {"pattern": "^KEPT", "options": "i"}},
    ],
    "excludeNamespaces": [{"database": "all", "collections": ["left out"]}],
}


def filtered_walk(pair: Pair, daemon: Daemon) -> tuple[Document, set[str]]:
    """Run a sync with namespace filters until a mismatch makes it fail.

    Return its last progress, and the names of the destination's collections.
    """
    source = pair.source.client
    for name in ("all.c", "all.left out", "some.kept", "some.other", "regex.kept 1", "regex.other"):
        database, _, collection = name.partition(".")
        source[database][collection].insert_one({"_id": 1})
    daemon.start(**FILTERS, enableUserWriteBlocking="none")
    daemon.wait_until_committable()
    source["newcomer"]["c"].insert_one({"_id": 1})
    source["all"]["c"].insert_one({"_id": 2})
    # The destination accepts this write, because the sync does not block user writes.
    pair.destination.client["some"]["kept"].insert_one({"_id": "behind the back"})
    daemon.ask_for_commit()
    return daemon.wait_for_state("FAILED"), _names(pair.destination.client)


def _names(client: Client) -> set[str]:
    return {
        f"{database}.{collection}"
        for database in client.list_database_names()
        if database not in _KEPT
        for collection in client[database].list_collection_names()
    }


def ttl_walk(pair: Pair, daemon: Daemon) -> Document:
    """Run a verified sync without index builds, and create a TTL index on the source, which makes the sync fail.

    Return the progress of the failed sync.
    """
    fill(pair)
    daemon.start(buildIndexes="never")
    daemon.wait_until_committable()
    pair.source.client.d.c.create_index("when", expireAfterSeconds=10**8)
    return daemon.wait_for_state("FAILED")


def reversed_walk(pair: Pair, daemon: Daemon) -> tuple[Answer, Document]:
    """Run a sync and reverse it; return the answer to /reverse, and the progress when the sync is RUNNING again."""
    fill(pair)
    daemon.start(reversible=True, enableUserWriteBlocking=True)
    daemon.commit()
    answer = answer_of(daemon.post("reverse"))
    return answer, daemon.wait_for_state("RUNNING")


BLOCKING = {
    "enableUserWriteBlocking": True,
    "buildIndexes": "never",
    "verification": {"enabled": False},
}


def blocking_walk(pair: Pair, daemon: Daemon) -> Walk:
    """Run a sync that blocks user writes on both clusters and builds no indexes; return its recorded moments.

    The sync runs without verification: the source has a TTL index, which a verified sync must build.
    """
    fill(pair)
    pair.source.client.d.c.create_index("when", expireAfterSeconds=10**8)
    return walk(pair, daemon, BLOCKING, lambda: None)


def _by_n(*names: str, supported: bool) -> Document:
    """Return the start options that shard the named collections of the database d by the field `n`.

    `supported` is the value of createSupportingIndexes.
    """
    entries = [
        {"database": "d", "collection": name, "shardCollection": {"key": [{"n": 1}]}}
        for name in names
    ]
    return {"sharding": {"createSupportingIndexes": supported, "shardingEntries": entries}}


def _refused_starts(pair: Pair, daemon: Daemon) -> Iterator[tuple[str, Answer]]:
    """Send start requests that must be refused because the destination is sharded.

    Yield the answer to each, with the name under which the contract tests look it up.
    """
    d = pair.source.client.d
    d.unserved.insert_one({})
    d.create_collection("collated", collation={"locale": "en"}).create_index("n")
    d.against.create_index("n")
    d.against.create_index("m", unique=True)
    for name in ("unserved", "collated", "against"):
        asked = {**GOOD, **_by_n(name, supported=False)}
        yield name, answer_of(daemon.post("start", asked))
        d.drop_collection(name)
    yield "no sharding", answer_of(daemon.post("start", GOOD))
    reversible = {"reversible": True, "enableUserWriteBlocking": True}
    asked = {**GOOD, **reversible, **_by_n("c", supported=True)}
    yield "reversible", answer_of(daemon.post("start", asked))


def _shard_keys(pair: Pair) -> dict[str, Document]:
    rows = pair.destination.client.config.collections.find({"_id": {"$regex": "^d\\."}})
    return {row["_id"]: dict(row["key"]) for row in rows}


def _index_names(pair: Pair) -> set[str]:
    return set(pair.destination.client.d.c.index_information())


def sharded_walk(pair: Pair, folder: Path) -> Sharded:
    """Send starts that must be refused, and run three syncs to a sharded cluster. Return the results of both.

    During the first sync, two collections are renamed before the copy begins, and a third one after it was copied.
    """
    source = pair.source.client
    with running(pair, folder / "served") as daemon:
        refused = dict(_refused_starts(pair, daemon))
        for name in ("c", "early", "late", "plain"):
            source.d[name].insert_many({"_id": n, "n": n} for n in range(100))
            source.d[name].create_index("n")
        with daemon.held_at(Point.LISTED):
            daemon.start(**_by_n("c", "early", "late", "into", supported=False))
            daemon.wait_until_reached(Point.LISTED)
            source.d.plain.rename("into")
            source.d.early.rename("from before")
        daemon.wait_until_committable()
        source.d.late.rename("from after")
        daemon.commit()
        keys, served = _shard_keys(pair), _index_names(pair)
    with running(pair, folder / "never") as daemon:
        fill(pair)
        daemon.start(buildIndexes="never", **_by_n("c", supported=True))
        daemon.commit()
        always = _index_names(pair)
    with running(pair, folder / "created") as daemon:
        source.d.c.insert_one({})
        daemon.start(**_by_n("c", supported=True))
        daemon.wait_until_committable()
        created = _index_names(pair)
        source.admin.command({"renameCollection": "d.c", "to": "e.c"})
        renamed = daemon.wait_for_state("FAILED")
    return Sharded(refused, keys, served, created, always, renamed)


def everything(pair: Pair, to_sharded: Pair, folder: Path, refused: Mapping[str, Document]) -> Seen:
    """Send the requests that must be refused, and run all syncs one after another. Return all recorded results.

    `to_sharded` is a pair with a sharded destination. `refused` maps names to the bodies of invalid start requests.
    """
    with running(pair, folder / "usual") as daemon:
        idle = daemon.progress()
        refusals = {name: answer_of(daemon.post("start", refused[name])) for name in refused}
        refusals |= {name: answer_of(daemon.post(name)) for name in ("commit", "reverse")}
        with daemon.no_room():
            refusals["little memory"] = answer_of(daemon.post("start", GOOD))
        after_refusals = daemon.progress()
        fill(pair)
        usual, check = checked_walk(pair, daemon, folder / "verifier")
        pair.assert_equal()
        started_again = answer_of(daemon.post("start", GOOD))
    with running(pair, folder / "blocking") as daemon:
        blocking = blocking_walk(pair, daemon)
    with running(pair, folder / "filtered") as daemon:
        filtered, names = filtered_walk(pair, daemon)
    with running(pair, folder / "ttl") as daemon:
        ttl = ttl_walk(pair, daemon)
    with running(pair, folder / "reversed") as daemon:
        reversing, reversed_ = reversed_walk(pair, daemon)
    sharded = sharded_walk(to_sharded, folder)
    return Seen(
        addresses=(pair.source.uri.split("/")[2], pair.destination.uri.split("/")[2]),
        idle=idle,
        refused=refusals,
        after_refusals=after_refusals,
        usual=usual,
        started_again=started_again,
        check=check,
        blocking=blocking,
        filtered=filtered,
        filtered_names=names,
        ttl=ttl,
        reversing=reversing,
        reversed=reversed_,
        sharded=sharded,
    )
