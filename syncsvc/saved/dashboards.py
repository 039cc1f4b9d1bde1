"""Writes the documents for dashboards of mongosync; they are in the metadata database, and never read here.

Only a new engine inserts a document, with a writer whose late writes the cluster refuses. All other writes update the
existing document of the same owner. So neither a superseded process nor a write that the network delays can change the
documents of another process, or create them again after a reset.
"""

from __future__ import annotations

from typing import Any

import pymongo
from pymongo.errors import OperationFailure

from syncsvc.saved.run import METADATA_DATABASE
from verifier.cluster.writer import PRIMARY_ONLY, ClusterWriter

# The names of the collections, as in mongosync.
RESUME_DATA = "resumeData"
GLOBAL_STATE = "globalState"

# How long one update may take, in seconds.
_PATIENCE = 5.0

Document = dict[str, Any]


def insert(writer: ClusterWriter, name: str, document: Document) -> None:
    """Insert or replace a document in the collection `name`. Raises the driver's errors."""
    statement = {"q": {"_id": document["_id"]}, "u": document, "upsert": True}
    _run(writer, {"update": name, "updates": [statement]}, retried=True)


def update(writer: ClusterWriter, name: str, document: Document) -> bool:
    """Replace the document in the collection `name` that has the same owner; return whether there is one.

    The attempt is short and not retried. It needs no majority, because the next one replaces it. Raises the driver's
    errors.
    """
    query = {"_id": document["_id"], "owner": document["owner"]}
    command = {"update": name, "updates": [{"q": query, "u": document}]}
    with pymongo.timeout(_PATIENCE):
        reply = _run(writer, {**command, "writeConcern": PRIMARY_ONLY}, retried=False)
    return bool(reply["n"] == 1)


def _run(writer: ClusterWriter, command: Document, retried: bool) -> Document:
    reply = writer.run(METADATA_DATABASE, command, retried)
    for error in reply.get("writeErrors", ()):
        raise OperationFailure(error.get("errmsg", ""), error["code"], error)
    return reply
