"""Overwrites documents of the destination with whole documents from the copy, change events or a second read.

In a sharded collection, no single statement can overwrite a document: a router may refuse an upsert without the
whole shard key, and a replacement whose shard key belongs to another shard matches nothing and reports no error. So an
existing document is deleted on every shard before the new one is inserted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from syncsvc.engine.definitions.index_builds import withhold
from syncsvc.engine.documents.statements import WriteError, run_deletes
from syncsvc.engine.documents.translate import (
    Outcome,
    fits_statement,
    growing_statements,
    holds_zero_timestamp,
    literal_stage,
    update_statement,
)
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.document_writer import already_exists, refusal
from syncsvc.engine.run.points import Point
from syncsvc.figures.progress import WarningKind
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.keys import id_only, shown
from verifier.cluster.namespace import Namespace
from verifier.runtime.tasks import StopToken

# The pause between two attempts to insert a document whose `_id` an orphaned document occupies, in seconds.
_PAUSE = 1.0

# A refused document, with the server's error.
Refusal = tuple[Outcome, WriteError]


def overwrite(
    context: RunContext,
    record: CollectionRecord,
    documents: list[Outcome],
    ordered: bool,
    stop: StopToken,
) -> tuple[list[Outcome], str]:
    """Write whole documents. If any is refused, drop the collection's indexes for a time, and retry the unwritten ones.

    The indexes are withheld (see `withhold`), because one of them may have refused the document.

    Return the documents that were not written, and the error of the first one; both are empty if all documents are
    written. With `ordered`, write the documents in their order, and stop at the first refused one; a sharded collection
    ignores `ordered`.
    """

    def attempt(documents: list[Outcome]) -> tuple[list[Outcome], str]:
        if record.definition.sharded:
            return _overwrite_sharded(context, record.namespace, documents, stop)
        return _upsert(context, record.namespace, documents, ordered)

    left, error = attempt(documents)
    if left and withhold(context, record.uuid, error, stop):
        left, error = attempt(left)
    return left, error


def _overwrite_sharded(
    context: RunContext, namespace: Namespace, documents: list[Outcome], stop: StopToken
) -> tuple[list[Outcome], str]:
    """Overwrite documents in a sharded collection, in any order: a sharded collection is never capped.

    Return the documents that were refused, and the error of the first one; an empty text if there is none.
    """
    refused = overwrite_sharded(context, namespace, documents, stop)
    return [outcome for outcome, _ in refused], refusal(refused[0][1]) if refused else ""


def _upsert(
    context: RunContext, namespace: Namespace, documents: list[Outcome], ordered: bool
) -> tuple[list[Outcome], str]:
    groups = [(fits, [*group]) for fits, group in groupby(documents, fits_statement)]
    for number, (fits, group) in enumerate(groups, 1):
        if fits:
            left, error = _upsert_at_once(context, namespace, group, ordered)
        else:
            left, error = _grow(context, namespace, group)
        if left:
            return left + [each for _, later in groups[number:] for each in later], error
    return [], ""


def _grow(
    context: RunContext, namespace: Namespace, documents: list[Outcome]
) -> tuple[list[Outcome], str]:
    """Write documents that are too large for one statement, each with two statements; stop at the first refused one.

    Return the documents from the refused one on, and its error; both are empty if all documents are written. If the
    process ends between the two statements, or the second one is refused, the document has only its `_id` until it is
    written again.
    """
    for number, each in enumerate(documents):
        for statement in growing_statements(each):
            _, errors = context.document_writer.update(namespace, [statement], ordered=True)
            if errors:
                return documents[number:], refusal(errors[0])
    return [], ""


def _upsert_at_once(
    context: RunContext, namespace: Namespace, left: list[Outcome], ordered: bool
) -> tuple[list[Outcome], str]:
    error = ""
    # Force the use of a pipeline only for refused documents and later ones. WARNING: MongoDB 6.0 crashes if a pipeline
    # changes a field whose name occurs twice.
    for literal in (False, True):
        if left:
            statements = [update_statement(each, literal) for each in left]
            _, errors = context.document_writer.update(namespace, statements, ordered)
            error = refusal(errors[0]) if errors else ""
            if ordered:
                # An ordered command ends at its first error.
                left = left[errors[0]["index"] :] if errors else []
            else:
                left = [left[each["index"]] for each in errors]
    return left, error


def overwrite_sharded(
    context: RunContext, namespace: Namespace, documents: Sequence[Outcome], stop: StopToken
) -> list[Refusal]:
    """Write whole documents, replacing those with the same `_id` on all shards; return the refused ones with errors."""
    clear(context, namespace, documents)
    return insert_missing(context, namespace, documents, stop)


def insert_missing(
    context: RunContext, namespace: Namespace, documents: Sequence[Outcome], stop: StopToken
) -> list[Refusal]:
    """Insert documents whose `_id` does not exist on the destination yet; return the refused ones with their errors.

    If an `_id` exists after all, delete its document and retry the insert. A router cannot delete an orphaned document:
    while one has the `_id`, warn and wait.
    """
    refused, clashes = _insert(context, namespace, documents)
    if clashes:
        # If the reply to an insert was lost, these clashes are documents that this insert wrote.
        clear(context, namespace, clashes)
        more, clashes = _insert(context, namespace, clashes)
        refused += more
    if clashes:
        refused += _insert_after_orphans(context, namespace, clashes, stop)
    return refused + _set_right(context, namespace, documents)


def _insert_after_orphans(
    context: RunContext, namespace: Namespace, clashes: list[Outcome], stop: StopToken
) -> list[Refusal]:
    """Insert documents once no orphaned documents have their `_id`; return the refused ones with their errors."""
    refused: list[Refusal] = []
    try:
        while clashes:
            _await_orphan(context, namespace, clashes[0], stop)
            clear(context, namespace, clashes)
            more, clashes = _insert(context, namespace, clashes)
            refused += more
    finally:
        context.progress.end_warning(WarningKind.ORPHAN_AWAITED)
    return refused


def clear(context: RunContext, namespace: Namespace, outcomes: Sequence[Outcome]) -> None:
    """Delete the documents whose `_id` is that of one of the outcomes, on all shards.

    Everything else in the outcomes is ignored. Raises OperationError EventNotApplicable, DestinationNamespaceExists if
    the collection proves to be foreign, and the driver's errors.
    """
    if not outcomes:
        return
    gone = [Outcome(id_only(each.key), deleted=True) for each in outcomes]
    run_deletes(context.document_writer, namespace, gone, ordered=False)
    context.observe(Point.IDS_CLEARED, str(namespace))


def _insert(
    context: RunContext, namespace: Namespace, outcomes: Sequence[Outcome]
) -> tuple[list[Refusal], list[Outcome]]:
    """Insert documents. Return the refused ones with their errors, and the ones whose `_id` already exists."""
    inserted = [each for each in outcomes if each.document is not None]
    if not inserted:
        return [], []
    documents = b"".join([each.document for each in inserted if each.document is not None])
    errors = context.document_writer.insert(namespace, documents)
    clashes = [inserted[each["index"]] for each in errors if already_exists(each)]
    return [(inserted[e["index"]], e) for e in errors if not already_exists(e)], clashes


def _set_right(
    context: RunContext, namespace: Namespace, documents: Sequence[Outcome]
) -> list[Refusal]:
    """Restore the value Timestamp(0, 0) in inserted documents, where the server has replaced it with the current time.

    Return the refused documents with their errors.
    """
    altered = [each for each in documents if each.document and holds_zero_timestamp(each.document)]
    if not altered:
        return []
    literal = [
        Outcome(id_only(each.key), stages=[literal_stage(each.document)])
        for each in altered
        if each.document
    ]
    statements = [update_statement(each) for each in literal]
    _, errors = context.document_writer.update(namespace, statements, ordered=False)
    return [(altered[each["index"]], each) for each in errors]


def _await_orphan(
    context: RunContext, namespace: Namespace, outcome: Outcome, stop: StopToken
) -> None:
    context.progress.warn(
        WarningKind.ORPHAN_AWAITED,
        f"The document with _id {shown(outcome.key)} cannot be written to {namespace} on the destination yet: its "
        "shard there still holds an orphaned document with that _id, which a chunk migration left behind. You need not "
        "do anything: the shard removes it after the delay that orphanCleanupDelaySecs sets, 15 minutes by default.",
    )
    stop.sleep(_PAUSE)
