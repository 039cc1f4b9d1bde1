"""Computes the verdict of a check. The functions here have no side effects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from verifier.compare.check_progress import MismatchCounts, Outcome, Verdict
from verifier.compare.mismatch import Mismatch
from verifier.runtime.errors import ErrorKind

# The maximum number of document mismatches, and also of definition mismatches, that the reasons name.
NAMED = 5


def verdict_of(counts: MismatchCounts, examples: Iterable[Mismatch]) -> Verdict:
    """Return the verdict of a check that compared everything. Its reasons include `examples` of the mismatches."""
    reasons = tuple(_reasons(counts, examples))
    return Verdict(Outcome.FAILED if reasons else Outcome.PASSED, reasons)


def _reasons(counts: MismatchCounts, examples: Iterable[Mismatch]) -> Iterator[str]:
    for difference, number in sorted(counts.documents.items(), key=lambda each: each[0].value):
        documents = "1 document is" if number == 1 else f"{number:,} documents are"
        yield f"{documents} {difference}."
    if counts.definitions:
        number = counts.definitions
        noun = "difference" if number == 1 else "differences"
        yield f"{number:,} {noun} in definitions or in numbers of documents."
    for mismatch in examples:
        yield f"{mismatch}."


def incomplete(kind: ErrorKind, description: str) -> Verdict:
    """Return the verdict of a check that could not compare everything, with the error that prevented it."""
    return Verdict(Outcome.INCOMPLETE, (description,), kind.name)
