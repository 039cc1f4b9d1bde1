"""Writes whole documents over whatever is there: for the copy, and for what is read again."""

from __future__ import annotations

from syncsvc.engine.destination import refusal
from syncsvc.engine.parts import Parts
from syncsvc.engine.translate import Outcome, update_statement
from syncsvc.engine.withholding import withhold
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.namespace import Namespace
from verifier.runtime.tasks import StopToken


def write_whole(
    parts: Parts, record: CollectionRecord, documents: list[Outcome], ordered: bool, stop: StopToken
) -> tuple[list[Outcome], str]:
    """Upsert documents, without the collection's indexes if these refuse one: what is left, and why its first is.

    With `ordered`, nothing after a refused document is written before it.
    """
    left, error = _try(parts, record.namespace, documents, ordered)
    if left and withhold(parts, record.uuid, error, stop):
        left, error = _try(parts, record.namespace, left, ordered)
    return left, error


def _try(
    parts: Parts, namespace: Namespace, left: list[Outcome], ordered: bool
) -> tuple[list[Outcome], str]:
    error = ""
    # A pipeline only where it must be: servers end in one that changes a field whose name is there twice.
    for literal in (False, True):
        if left:
            statements = [update_statement(each, literal) for each in left]
            _, errors = parts.destination.update(namespace, statements, ordered)
            error = refusal(errors[0]) if errors else ""
            if ordered:
                # The command ended at its first error.
                left = left[errors[0]["index"] :] if errors else []
            else:
                left = [left[each["index"]] for each in errors]
    return left, error
