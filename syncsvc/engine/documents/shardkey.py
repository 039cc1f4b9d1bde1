"""Derives queries for single documents from a shard key, and detects updates of shard key fields, on raw BSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from syncsvc.engine.documents.translate import Outcome
from verifier.cluster import rawbson
from verifier.cluster.keys import id_element
from verifier.cluster.rawbson import BOOLEAN, DOCUMENT, UNDEFINED, Element, elements
from verifier.cluster.specification import Document

_ID = b"_id"
# The path to the diff in a stage that replays an update of the oplog.
_DIFF_PATH = (b"$_internalApplyOplogUpdate", b"oplogUpdate", b"diff")


@dataclass(frozen=True)
class ShardKey:
    """A shard key, given by the `paths` of its fields. The parts of a path are separated by dots."""

    paths: tuple[bytes, ...]

    @classmethod
    def of(cls, shard_key: Document) -> ShardKey:
        """Build a ShardKey from `CollectionSpec.shard_key`, which must not be empty."""
        return cls(tuple(name.encode() for name in shard_key["key"]))

    @property
    def projection(self) -> dict[str, int]:
        """Return the projection that keeps all fields that `query_of` needs."""
        return {"_id": 1} | {path.decode(): 1 for path in self.paths if not _is_of_id(path)}

    def query_of(self, document: bytes) -> bytes:
        """Return, as BSON, the query that finds the document by shard key and `_id`, on its shard alone.

        A missing field is queried as null, because a shard key treats both as equal. An undefined field is left out,
        because no query can contain it: the query then goes to all shards.
        """
        return _query(document, ((path, _at_path(document, path)) for path in self.paths))

    def query_of_key(self, key: bytes) -> bytes | None:
        """Return, as BSON, the query that finds only the document with `key`, the `documentKey` of a change event.

        Return None if there is no such query: the key lacks a field of the shard key (because the document lacks it, or
        the collection had another shard key then), or a field is undefined, which no query can find.
        """
        fields = {each.name: each for each in elements(key)}
        if any(path not in fields or fields[path].kind == UNDEFINED for path in self.paths):
            return None
        return _query(key, fields.items())

    def is_touched_by(self, outcome: Outcome) -> bool:
        """Return whether the updates of an outcome write a field of the shard key, even with the same value."""
        if outcome.sets is not None:
            return any(map(self._touches, outcome.sets))
        return any(self._touches(path) for stage in outcome.stages for path in _written(stage))

    def _touches(self, written: bytes) -> bool:
        return any(
            written == path or written.startswith(path + b".") or path.startswith(written + b".")
            for path in self.paths
        )


def _is_of_id(path: bytes) -> bool:
    """Return whether the path is `_id` or a field inside it. A server refuses `_id` together with such a field."""
    return path.partition(b".")[0] == _ID


def _query(raw: bytes, fields: Iterable[tuple[bytes, Element | None]]) -> bytes:
    """Return, as BSON, a query for the `_id` of the document `raw` and for the given fields.

    `fields` holds the path of each field with its value in `raw`, which is None if the field is missing.
    """
    parts = []
    for path, found in fields:
        if _is_of_id(path) or found is not None and found.kind == UNDEFINED:
            continue
        kind, value = (found.kind, raw[found.start : found.end]) if found else (rawbson.NULL, b"")
        # Use $eq: values may be regular expressions, or documents that look like operators.
        parts.append(b"\x03%b\0%b" % (path, rawbson.single(kind, b"$eq", value)))
    identity = id_element(raw)
    parts.append(b"%c_id\0%b" % (identity.kind, raw[identity.start : identity.end]))
    return rawbson.document(*parts)


def _at_path(document: bytes, path: bytes) -> Element | None:
    at = 0
    *parents, name = path.split(b".")
    for parent in parents:
        element = rawbson.find(document, parent, at)
        if element is None or element.kind != DOCUMENT:
            return None
        at = element.start
    return rawbson.find(document, name, at)


def _written(stage: bytes) -> Iterator[bytes]:
    """Yield the dotted paths that a stage of `Outcome.stages` writes."""
    at = 0
    for name in _DIFF_PATH:
        element = rawbson.find(stage, name, at)
        assert element is not None  # the code that made the stage put it there
        at = element.start
    return _written_by_diff(stage, at, b"")


def _written_by_diff(raw: bytes, at: int, parent: bytes) -> Iterator[bytes]:
    for section in elements(raw, at):
        if section.kind == BOOLEAN:
            # This is the diff of an array. No shard key field can be inside an array, so the array's path is enough.
            yield parent[:-1]
            return
        if section.name in (b"u", b"i", b"d"):
            yield from (parent + each.name for each in elements(raw, section.start))
        else:
            yield from _written_by_diff(raw, section.start, parent + section.name[1:] + b".")
