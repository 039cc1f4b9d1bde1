"""A fake of the verifier's service that records its calls, and returns a given progress."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from tests.unit.verifier.values import DEFINITION_MISMATCH, FAILED, document_mismatch, subject
from verifier.cluster.document_filters import DocumentFilters
from verifier.cluster.specification import Document
from verifier.compare.check_progress import CheckProgress
from verifier.compare.mismatch import StoredMismatch
from verifier.compare.record import SentCommand
from verifier.reports.report import report


class Recorder:
    """A fake of the verifier's service, whose progress is `shown`.

    `asked` contains a name and the arguments of each call, except calls of `progress`. It leaves out the sender of a
    command, and filters of collections if there are none; each element of a list is an argument. If `error` is set,
    these calls raise it, but `document_mismatches` first yields two mismatches.
    """

    def __init__(self, shown: CheckProgress = FAILED) -> None:
        self.asked: list[Any] = []
        self.error: Exception | None = None
        self.shown = shown

    def check(
        self,
        document_filter: Document | None,
        command: SentCommand,
        remap: Sequence[Document] = (),
        source_filters: DocumentFilters = DocumentFilters(),
    ) -> None:
        self._note("check", document_filter, *remap, *([source_filters] if source_filters else []))

    def writes_off(self, command: SentCommand) -> None:
        self._note("writesOff")

    def report(self) -> dict[str, Any]:
        self._note("report")
        return report(subject(self.shown))

    def progress(self) -> CheckProgress:
        return self.shown

    def document_mismatches(
        self,
        after: str | None,
        limit: int | None,
        least_seconds: float,
        namespaces: Collection[str] = (),
    ) -> Iterator[StoredMismatch]:
        self.asked.append(("docMismatches", after, limit, least_seconds, *namespaces))
        yield from map(document_mismatch, [1, "x"])
        if self.error is not None:
            raise self.error

    def definition_mismatches(
        self, after: str | None, limit: int | None, namespaces: Collection[str] = ()
    ) -> Iterator[StoredMismatch]:
        self._note("nsMismatches", after, limit, *namespaces)
        yield DEFINITION_MISMATCH

    def _note(self, *asked: Any) -> None:
        self.asked.append(asked)
        if self.error is not None:
            raise self.error
