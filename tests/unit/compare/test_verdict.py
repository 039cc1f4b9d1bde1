"""The outcome and the reasons of a verdict follow from what the check has found."""

from __future__ import annotations

import bson

from verifier.cluster.namespace import Namespace
from verifier.compare.check_progress import MismatchCounts, Outcome, Verdict
from verifier.compare.errors import DEFINITION_CHANGED
from verifier.compare.mismatch import Aspect, DefinitionMismatch, Difference, DocumentMismatch
from verifier.compare.verdict import incomplete, verdict_of

NAME = Namespace("d", "c")


def test_a_check_without_differences_passes() -> None:
    assert verdict_of(MismatchCounts(), []) == Verdict(Outcome.PASSED)


def test_differences_are_counted_and_named() -> None:
    document = DocumentMismatch(NAME, bson.encode({"_id": 5}), Difference.MISSING)
    index = DefinitionMismatch(NAME, Difference.EXTRA, Aspect.INDEX, "a_1")
    counts = MismatchCounts({Difference.MISSING: 1200, Difference.CONTENT: 1}, {NAME: 1201}, 1)
    verdict = verdict_of(counts, [document, index])
    assert verdict.outcome is Outcome.FAILED
    assert verdict.reasons == (
        "1 document is different.",
        "1,200 documents are missing on the destination.",
        "1 difference in definitions or in numbers of documents.",
        f"{document}.",
        f"{index}.",
    )


def test_an_incomplete_check_names_its_error() -> None:
    verdict = incomplete(DEFINITION_CHANGED, "why")
    assert verdict == Verdict(Outcome.INCOMPLETE, ("why",), "DefinitionChanged")
