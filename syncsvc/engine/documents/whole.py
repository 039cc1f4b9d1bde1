"""Writes whole documents over whatever is there: for the copy, and for what is read again."""

from __future__ import annotations

from syncsvc.engine.definitions.withholding import withhold
from syncsvc.engine.documents.document_writer import refusal
from syncsvc.engine.documents.placing import place
from syncsvc.engine.documents.translate import Outcome, update_statement
from syncsvc.engine.run_context import RunContext
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.namespace import Namespace
from verifier.runtime.tasks import StopToken


def write_whole(
    context: RunContext,
    record: CollectionRecord,
    documents: list[Outcome],
    ordered: bool,
    stop: StopToken,
) -> tuple[list[Outcome], str]:
    """Write documents, without the collection's indexes if these refuse one: what is left, and why its first is.

    With `ordered`, nothing after a refused document is written before it.
    """

    def attempt(documents: list[Outcome]) -> tuple[list[Outcome], str]:
        if record.definition.sharded:
            return _place(context, record.namespace, documents, stop)
        return _upsert(context, record.namespace, documents, ordered)

    left, error = attempt(documents)
    if left and withhold(context, record.uuid, error, stop):
        left, error = attempt(left)
    return left, error


def _place(
    context: RunContext, namespace: Namespace, documents: list[Outcome], stop: StopToken
) -> tuple[list[Outcome], str]:
    """Whatever the order: a sharded collection has none."""
    refused = place(context, namespace, documents, stop)
    return [outcome for outcome, _ in refused], refusal(refused[0][1]) if refused else ""


def _upsert(
    context: RunContext, namespace: Namespace, left: list[Outcome], ordered: bool
) -> tuple[list[Outcome], str]:
    error = ""
    # A pipeline only where it must be: servers end in one that changes a field whose name is there twice.
    for literal in (False, True):
        if left:
            statements = [update_statement(each, literal) for each in left]
            _, errors = context.document_writer.update(namespace, statements, ordered)
            error = refusal(errors[0]) if errors else ""
            if ordered:
                # The command ended at its first error.
                left = left[errors[0]["index"] :] if errors else []
            else:
                left = [left[each["index"]] for each in errors]
    return left, error
