"""Reads a change stream past an `invalidate` event, after which the server ends the stream.

Routers of MongoDB 6.0 and 7.0 send this event to the change stream of a whole cluster during `movePrimary`. The tests
have no such router. So they read the stream of a single collection, which ends in the same way when the collection is
dropped.
"""

from __future__ import annotations

from syncsvc.engine.events.ddl import has_consequences
from tests.support.pair import Pair
from verifier.cluster.changes import ChangeReader, ChangeStream, Form, start_position
from verifier.cluster.cluster import open_cluster
from verifier.cluster.events import DefinitionEvent, KeyEvent, parse_key_event
from verifier.cluster.namespace import is_user_namespace
from verifier.cluster.rawcursor import RawCursor
from verifier.cluster.times import Position
from verifier.runtime.tasks import StopToken


class _OfCollection(ChangeStream):
    """The change stream of the collection d.c, opened with the same stages as that of a whole cluster."""

    def open(self, position: Position | None, form: Form = Form()) -> RawCursor:
        first, *others = self._pipeline(position, form)
        del first["$changeStream"]["allChangesForCluster"]
        command = {"aggregate": "c", "pipeline": [first, *others]}
        return RawCursor(self.client, "d", command, batch_size=10, await_ms=self.wait_ms)


def test_a_reader_continues_after_an_invalidate_event(pair: Pair) -> None:
    """Drop a collection and create it again: its stream is invalidated, and the reader must find the later events.

    The sync, its verification and the verifier must ignore the `invalidate` events, which have no namespace.
    """
    cluster = open_cluster("source", pair.source.uri, "test")
    with cluster.client:
        stream = _OfCollection(cluster.client, cluster.facts, keys_only=True)
        position = start_position(stream)
        for number in range(2):
            pair.source.client.d.c.insert_one({"_id": number})
            pair.source.client.d.c.drop()
        found: list[KeyEvent | DefinitionEvent] = []
        for page in ChangeReader(stream, position, StopToken()).pages():
            found += map(parse_key_event, map(bytes, page.events))
            if sum(each.operation == "invalidate" for each in found) == 2:
                break
    once = ["create", "insert", "drop", "invalidate"]
    assert [each.operation for each in found] == once * 2
    for each in found:
        if each.operation == "invalidate":
            assert isinstance(each, DefinitionEvent)
            assert not has_consequences(each)
            assert not any(map(is_user_namespace, each.owners))
