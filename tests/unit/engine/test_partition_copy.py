"""Tests which pages count as copied if the scan of a partition begins again."""

from __future__ import annotations

from types import SimpleNamespace

from bson import Timestamp

from syncsvc.engine.copying.partition_copy import PartitionCopy
from syncsvc.figures.progress import Progress
from syncsvc.saved.partitions import Partition
from syncsvc.source.natural_scan import ResumePoint
from syncsvc.tuning import Tuning
from tests.unit.engine.contexts import context_with
from tests.unit.syncsvc.records import collection_record
from verifier.runtime.tasks import StopToken


def test_only_the_pages_of_the_last_pass_count() -> None:
    """A page of the first pass is written after the second pass has begun: it must not count."""
    progress, saved = Progress(), list[Partition]()
    record = collection_record()
    partition = Partition(
        record.uuid, 0, copied=1000, documents=100, resume_point=ResumePoint({}, "")
    )
    # The progress counts what is saved, and then each page before `written` is called.
    progress.set(copied_documents=100, copied_bytes=1000)
    context = context_with(
        progress=progress,
        source_facts=SimpleNamespace(reports_ddl=True),
        partitions=SimpleNamespace(save=saved.append),
        tuning=Tuning(),
        observe=lambda point, subject: None,
    )
    copy = PartitionCopy(context, record, partition, Timestamp(1, 1), StopToken())
    early, late = copy.enter(None), copy.enter(None)
    progress.add(copied_documents=10, copied_bytes=100)
    copy.written(early, 10, 100)
    copy._begin_pass()
    again = copy.enter(None)
    for page in (late, again):
        progress.add(copied_documents=10, copied_bytes=100)
        copy.written(page, 10, 100)
    copy.all_read()
    assert (saved[-1].documents, saved[-1].copied) == (10, 100)
    found = progress.snapshot
    assert (found.copied_documents, found.copied_bytes) == (10, 100)
