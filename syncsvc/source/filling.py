"""Detects collections that `cloneCollectionAsCapped` is still filling on a source older than MongoDB 6.0.

This command inserts documents without visible change events, so the copy of such a collection must wait for the end of
the command. The command locks the collection from its creation until all documents are inserted. A read in a
transaction detects this lock: it must lock the collection, too, and fails soon if it cannot.
"""

from __future__ import annotations

from pymongo.errors import OperationFailure

from verifier.cluster import failures
from verifier.cluster.connect import Client, replacing_connections
from verifier.cluster.rawbson import RAW_LENIENT
from verifier.cluster.specification import CollectionSpec


def is_being_filled(client: Client, found: CollectionSpec) -> bool:
    """Return whether `found` is a capped collection that is locked, and so may still be filled by another command.

    The source must be a replica set. Raises the driver's errors.
    """
    if not found.capped:
        return False
    database, collection = found.namespace
    with client.start_session() as session, replacing_connections(client):
        session.start_transaction()
        try:
            # Do not decode the document, because its `_id` may be a string that is not valid UTF-8.
            command = {"find": collection, "projection": {"_id": 1}, "limit": 1}
            client[database].command(command, codec_options=RAW_LENIENT, session=session)
        except OperationFailure as error:
            if failures.code_of(error) != failures.LOCK_TIMEOUT:
                raise
            return True
        finally:
            if session.in_transaction:
                session.abort_transaction()
    return False
