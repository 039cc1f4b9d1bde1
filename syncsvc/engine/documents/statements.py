"""Runs the update and delete statements of outcomes on the destination.

An outcome is the combined effect of a batch of change events on one document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bson
from pymongo.errors import OperationFailure, PyMongoError

from syncsvc.engine.documents.translate import Outcome, delete_statement, fold, update_statement
from syncsvc.engine.run.document_writer import DocumentWriter, Refused, refusal
from syncsvc.errors import EVENT_NOT_APPLICABLE
from verifier.cluster import failures
from verifier.cluster.events import DataEvent, DataKind
from verifier.cluster.failures import is_refusal
from verifier.cluster.keys import shown
from verifier.cluster.namespace import Namespace
from verifier.runtime.errors import OperationError

# A refused statement: its `index`, and the server's `code` and `errmsg` if the server has replied.
WriteError = dict[str, Any]


def run_updates(
    document_writer: DocumentWriter,
    namespace: Namespace,
    outcomes: Sequence[Outcome],
    ordered: bool,
) -> tuple[int, list[WriteError]]:
    """Run the update statements of outcomes; return how many matched or created a document, and the write errors.

    WARNING: MongoDB 6.0 crashes if a pipeline changes a field whose name occurs twice in the document. So after a lost
    connection, this call does not send statements with a pipeline that changes fields again. They are reported as
    refused, so that the caller reads their documents again. With `ordered`, only the first refused statement is
    reported; the caller must run the statements after it.
    """
    statements = [update_statement(each) for each in outcomes]
    risky = [number for number, each in enumerate(outcomes) if each.stages and not each.sets]
    if not risky:
        return document_writer.update(namespace, statements, ordered)
    try:
        return document_writer.update(namespace, statements, ordered, retried=False)
    except PyMongoError as error:
        if failures.temporary(error) is None:
            raise
    sent = range(risky[0]) if ordered else sorted(set(range(len(outcomes))) - set(risky))
    found, errors = 0, list[WriteError]()
    if sent:
        found, errors = document_writer.update(namespace, [statements[n] for n in sent], ordered)
    refused = [{**error, "index": sent[error["index"]]} for error in errors]
    if ordered:
        return found, refused or [{"index": risky[0]}]
    return found, refused + [{"index": number} for number in risky]


def run_deletes(
    document_writer: DocumentWriter,
    namespace: Namespace,
    outcomes: Sequence[Outcome],
    ordered: bool,
) -> None:
    """Delete the documents of outcomes; a missing document is ignored.

    Raises OperationError EventNotApplicable if the server refuses a delete, and the other errors of `document_writer`.
    """
    if not outcomes:
        return
    try:
        document_writer.delete(namespace, [delete_statement(each) for each in outcomes], ordered)
    except Refused as refused:
        error = refused.errors[0]
        key = outcomes[error["index"]].key
        raise not_applicable(namespace, key, refusal(error)) from refused


def offers_raw_diffs(document_writer: DocumentWriter, scratch: Namespace) -> bool:
    """Return whether the destination can apply updates in the format of the oplog (diffs).

    To find out, this function upserts a document into the collection `scratch`. Raises the driver's errors.
    """
    key = bson.encode({"_id": "probe"})
    diff = bson.encode({"$v": 2, "diff": {"u": {"a": 2}}})
    insert = DataEvent(DataKind.INSERT, b"", key, bson.encode({"_id": "probe", "a": 1}))
    update = DataEvent(DataKind.UPDATE, b"", key, diff, raw_diff=True)
    statement = update_statement(fold(fold(None, insert), update))
    try:
        _, errors = document_writer.update(scratch, [statement], ordered=True)
    except OperationFailure as error:
        if not is_refusal(error):
            raise
        return False
    return not errors


def not_applicable(namespace: Namespace, key: bytes, error: str) -> OperationError:
    """Return OperationError EventNotApplicable for a refused write of the document with the `_id` in `key`.

    `error` is the result of `refusal`.
    """
    return OperationError(
        EVENT_NOT_APPLICABLE,
        f"A write of the document with _id {shown(key)} to {namespace} was refused: {error}.",
    )
