"""Proves from the oplog of a replica set that no user has written to the set since a given time."""

from __future__ import annotations

from bson.regex import Regex
from bson.timestamp import Timestamp
from pymongo.errors import PyMongoError

from verifier.cluster.connect import Client
from verifier.cluster.namespace import RESERVED_PREFIXES

# Matches the namespaces that users write to: all but those in `config`, `local` and the databases that sync services
# and verifiers keep for themselves.
_NOT_INTERNAL = {"$not": Regex(rf"^(config\.|local\.|{'|'.join(RESERVED_PREFIXES)})")}
# Matches the oplog entries of all user writes, and some others, such as TTL deletes. The entry of a transaction has a
# namespace in `admin`, and contains the writes of the transaction.
_BY_USERS = {
    "op": {"$ne": "n"},
    "ns": _NOT_INTERNAL,
    "$or": [
        {"o.applyOps": {"$exists": False}},
        {"o.applyOps": {"$elemMatch": {"ns": _NOT_INTERNAL}}},
    ],
}


def is_quiet(client: Client, since: Timestamp) -> bool:
    """Return whether the primary's oplog proves that no user has written at or after the time `since`.

    Return False if there is no proof: for a mongos, without the privilege to read the oplog, if the oplog does not
    reach back that far, or after an error of the driver. Raises no such errors.
    """
    oplog = client.local["oplog.rs"]
    try:
        if client.is_mongos:
            return False
        oldest = oplog.find_one(projection={"ts": 1})
        if oldest is None or oldest["ts"] > since:
            return False
        return oplog.find_one({"ts": {"$gte": since}, **_BY_USERS}, {"ts": 1}) is None
    except PyMongoError:
        return False
