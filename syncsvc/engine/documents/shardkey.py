"""What a shard key means for documents, document keys and updates, by their bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from syncsvc.engine.documents.translate import Outcome
from verifier.cluster import rawbson
from verifier.cluster.keys import id_element
from verifier.cluster.rawbson import BOOLEAN, DOCUMENT, UNDEFINED, Element, elements
from verifier.cluster.specification import Document

_ID = b"_id"
# Where in a stage that replays an update of the oplog the diff is.
_DIFF_PATH = (b"$_internalApplyOplogUpdate", b"oplogUpdate", b"diff")


@dataclass(frozen=True)
class ShardKey:
    """The `paths` of the fields of a shard key; a path's parts are separated by dots."""

    paths: tuple[bytes, ...]

    @classmethod
    def of(cls, shard_key: Document) -> ShardKey:
        """That of a `CollectionSpec.shard_key`."""
        return cls(tuple(name.encode() for name in shard_key["key"]))

    @property
    def projection(self) -> dict[str, int]:
        """What leaves of documents all that `query_of` needs."""
        return {"_id": 1} | {path.decode(): 1 for path in self.paths if path != _ID}

    def query_of(self, document: bytes) -> bytes:
        """The query that finds the document by shard key and `_id`, on its shard alone.

        A field that is missing is found as null, which is the same to a shard key. One that is undefined is left out,
        as no query takes it: all shards are asked then.
        """
        return _query(document, ((path, _at_path(document, path)) for path in self.paths))

    def query_of_key(self, key: bytes) -> bytes | None:
        """The query that finds the document of a document key, as change events have it, and none of another key.

        None where a field of the shard key is not there: it was missing, or the key is of another time. And where one
        is undefined, which no query finds.
        """
        fields = {each.name: each for each in elements(key)}
        if any(path not in fields or fields[path].kind == UNDEFINED for path in self.paths):
            return None
        return _query(key, fields.items())

    def is_touched_by(self, outcome: Outcome) -> bool:
        """Whether the updates of an outcome write a field of the shard key, even if its value stays."""
        if outcome.sets is not None:
            return any(map(self._touches, outcome.sets))
        return any(self._touches(path) for stage in outcome.stages for path in _written(stage))

    def _touches(self, written: bytes) -> bool:
        return any(
            written == path or written.startswith(path + b".") or path.startswith(written + b".")
            for path in self.paths
        )


def _query(raw: bytes, fields: Iterable[tuple[bytes, Element | None]]) -> bytes:
    """The query for these fields of `raw`, and for its `_id`."""
    parts = []
    for path, found in fields:
        if path == _ID or found is not None and found.kind == UNDEFINED:
            continue
        kind, value = (found.kind, raw[found.start : found.end]) if found else (rawbson.NULL, b"")
        # Values may be regular expressions, or documents that look like operators.
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
    """The paths that a stage of `Outcome.stages` writes."""
    at = 0
    for name in _DIFF_PATH:
        element = rawbson.find(stage, name, at)
        assert element is not None  # whoever made the stage put it there
        at = element.start
    return _written_by_diff(stage, at, b"")


def _written_by_diff(raw: bytes, at: int, parent: bytes) -> Iterator[bytes]:
    for section in elements(raw, at):
        if section.kind == BOOLEAN:
            # The diff is of an array, which is within one field of a shard key, or in none.
            yield parent[:-1]
            return
        if section.name in (b"u", b"i", b"d"):
            yield from (parent + each.name for each in elements(raw, section.start))
        else:
            yield from _written_by_diff(raw, section.start, parent + section.name[1:] + b".")
