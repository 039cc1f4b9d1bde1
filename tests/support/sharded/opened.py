"""Commands of the stand-in for mongos that read the next batch of an open cursor, or kill cursors."""

from __future__ import annotations

from tests.support.sharded.call import Call
from tests.support.sharded.cursors import cursor_id_of
from tests.support.sharded.servers import Handler, Servers
from tests.support.sharded.streams import MergedStream
from tests.support.sharded.wire import BAD_VALUE, Document, Refused


def _more(servers: Servers, call: Call) -> Document:
    cursor_id = call.target
    cursor = servers.cursors.find(cursor_id)
    try:
        if isinstance(cursor, MergedStream):
            return cursor.more(cursor_id, call.body)
        address, name = cursor
        reply = servers.run(address, call.called(name))
    except (Refused, OSError):
        servers.cursors.remove(cursor_id)
        raise
    if not cursor_id_of(bytes(reply["cursor"].raw)):
        servers.cursors.remove(cursor_id)
    return reply


def _kill(servers: Servers, call: Call) -> Document:
    killed, unknown = [], []
    for cursor_id in call.body["cursors"]:
        try:
            _kill_one(servers, cursor_id, call)
            killed.append(cursor_id)
        except Refused:
            unknown.append(cursor_id)
    return {
        "cursorsKilled": killed,
        "cursorsNotFound": unknown,
        "cursorsAlive": [],
        "cursorsUnknown": [],
        "ok": 1.0,
    }


def _kill_one(servers: Servers, cursor_id: int, call: Call) -> None:
    cursor = servers.cursors.find(cursor_id)
    servers.cursors.remove(cursor_id)
    if isinstance(cursor, MergedStream):
        cursor.close()
        return
    address, name = cursor
    if name == "getMore":
        servers.run(address, call.having(cursors=[cursor_id]))
        return
    try:
        # There is no internal command to kill such a cursor, but an invalid getMore ends it.
        more = {name: cursor_id, "collection": call.target, "$db": call.database}
        servers.run(address, Call({**more, "maxTimeMS": 1}))
    except Refused as error:
        if error.code != BAD_VALUE:
            raise


ANYWHERE: dict[str, Handler] = {"getMore": _more, "killCursors": _kill}
