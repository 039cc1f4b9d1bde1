"""Tests the warning that is shown while an orphaned document has the `_id` of a document to insert."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from syncsvc.engine.documents.overwriting import insert_missing
from syncsvc.engine.documents.translate import whole
from syncsvc.figures.progress import Progress, WarningKind
from tests.unit.engine.contexts import context_with
from verifier.cluster.namespace import Namespace
from verifier.runtime.tasks import Cancelled, StopToken


class Refusing:
    """Stands for a destination that has an orphaned document with the `_id` of each inserted document."""

    def insert(self, namespace: Namespace, documents: bytes) -> list[dict[str, Any]]:
        return [{"index": 0, "code": 11000, "keyPattern": {"_id": 1}, "errmsg": "duplicate key"}]

    def delete(self, namespace: Namespace, statements: object, ordered: bool) -> None:
        pass


def test_the_warning_of_an_orphaned_document_ends_with_a_pause() -> None:
    progress = Progress()
    warned: list[WarningKind] = []

    class Pausing(StopToken):
        def sleep(self, seconds: float) -> None:
            warned.extend(progress.snapshot.warnings)
            raise Cancelled

    context = context_with(
        document_writer=Refusing(), progress=progress, observe=lambda *arguments: None
    )
    with pytest.raises(Cancelled):
        insert_missing(context, Namespace("d", "c"), [whole(bson.encode({"_id": 1}))], Pausing())
    assert warned == [WarningKind.ORPHAN_AWAITED]
    assert not progress.snapshot.warnings
