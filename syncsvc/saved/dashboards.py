"""Writes the documents that dashboards for mongosync read from the metadata database. This program never reads them.

Only a new engine inserts a document, with a writer whose late writes the cluster refuses. All other writes update the
existing document of the same owner. So neither a superseded process nor a write that the network delays can change the
documents of another process, or create them again after a reset.
"""

from __future__ import annotations

from typing import Any

import pymongo
from pymongo.errors import OperationFailure

from verifier.cluster.writer import PRIMARY_ONLY, ClusterWriter

# The names of the collections, as in mongosync.
RESUME_DATA = "resumeData"
GLOBAL_STATE = "globalState"

# How long one update may take, in seconds.
_PATIENCE = 5.0

Document = dict[str, Any]


def insert(writer: ClusterWriter, database: str, name: str, document: Document) -> None:
    """Insert a document into the collection `name`, or replace the one with its `_id`. Raises the driver's errors."""
    statement = {"q": {"_id": document["_id"]}, "u": document, "upsert": True}
    _run(writer, database, {"update": name, "updates": [statement]}, retried=True)


def update(writer: ClusterWriter, database: str, name: str, document: Document) -> bool:
    """Replace the document with the same `_id` and owner in the collection `name`; return False if there is none.

    The update is not retried, and times out after five seconds. The primary alone acknowledges the update, because the
    next update replaces the document again. Raises the driver's errors.
    """
    query = {"_id": document["_id"], "owner": document["owner"]}
    command = {"update": name, "updates": [{"q": query, "u": document}]}
    with pymongo.timeout(_PATIENCE):
        reply = _run(writer, database, {**command, "writeConcern": PRIMARY_ONLY}, retried=False)
    return bool(reply["n"] == 1)


def _run(writer: ClusterWriter, database: str, command: Document, retried: bool) -> Document:
    reply = writer.run(database, command, retried)
    for error in reply.get("writeErrors", ()):
        raise OperationFailure(error.get("errmsg", ""), error["code"], error)
    return reply
