"""The report says in plain words how a check ended, what it compared, and what differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import bson
import pytest
from bson.int64 import Int64
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.verifier.values import (
    CHECKING,
    DEFINITION_MISMATCH,
    FAILED,
    INCOMPLETE,
    ORDERS,
    PASSED,
    document_mismatch,
)
from verifier.cluster.namespace import Namespace
from verifier.compare.check_progress import (
    Amounts,
    CheckProgress,
    MismatchCounts,
    NamespaceProgress,
    Outcome,
    Verdict,
)
from verifier.compare.mismatch import (
    Aspect,
    DefinitionMismatch,
    Difference,
    DocumentMismatch,
    FieldDifference,
)
from verifier.reports.lines import _percent, report
from verifier.runtime.quantities import duration_text, size_text


def text(progress: CheckProgress, *keys: Any) -> str:
    return "\n".join(report(progress, [*map(document_mismatch, keys)], []))


@pytest.mark.parametrize(
    "progress, word",
    [(PASSED, "PASSED: "), (FAILED, "FAILED: "), (INCOMPLETE, "INCOMPLETE: ")],
)
def test_the_verdict_is_the_first_and_the_last_line(progress: CheckProgress, word: str) -> None:
    lines = report(progress, [], [])
    assert lines[0].startswith(word) and lines[-1] == lines[0]


def test_the_full_report_of_a_failed_check() -> None:
    keys = [7, "007", Int64(7), {"a": 1.0}]
    lines = report(FAILED, [*map(document_mismatch, keys)], [DEFINITION_MISMATCH])
    verdict = (
        "FAILED: the clusters differ. Do not switch to the destination yet. If a sync is running that is not COMMITTED "
        "yet, some differences are normal: check again when it is COMMITTED. Otherwise, fix the cause of the "
        "mismatches, and check again."
    )
    assert lines == [
        verdict,
        "- 1234 documents differ",
        "- 1 index differs",
        "",
        "Compared 2,000 documents, 1.0 MB, in 2 collections.",
        "Made 1,300 rechecks in 3 recheck generations.",
        "Duration: 1 min 40 s; the first comparison read 40 documents and 20.0 kB per second on average.",
        "",
        "Namespaces",
        "namespace      documents    compared      size    tasks done",
        "-----------  -----------  ----------  --------  ------------",
        "shop.orders        1,500       100 %  800.0 kB        7 of 7",
        "shop.items           500       100 %  200.0 kB        3 of 3",
        "",
        "Documents that differ: first 4 of 1,234",
        "1,200 missing on the destination, 34 different.",
        "type       namespace    _id                fields",
        "---------  -----------  -----------------  ----------------",
        "different  shop.orders  int 7              a.b: 1 against 2",
        'different  shop.orders  string "007"       a.b: 1 against 2',
        "different  shop.orders  long 7             a.b: 1 against 2",
        "different  shop.orders  object {'a': 1.0}  a.b: 1 against 2",
        "",
        "Collections, views and indexes that differ",
        "type       namespace    what         detail",
        "---------  -----------  -----------  ---------------",
        "different  shop.items   index sku_1  unique expected",
        "",
        "Change events during the check",
        "- source: 1,000 insert",
        "- destination: 900 insert",
        "",
        "Notes",
        "- shop.$view: not compared",
        "",
        verdict,
    ]


def test_a_passed_check_has_no_tables_of_mismatches() -> None:
    lines = report(PASSED, [], [])
    assert not [line for line in lines if "that differ" in line]


def test_an_incomplete_check_names_its_error() -> None:
    assert "- DefinitionChanged: shop.orders was dropped on the source.\n" in text(INCOMPLETE)


def test_a_running_check_has_no_verdict() -> None:
    lines = report(CHECKING, [], [])
    assert lines[0] == lines[-1] == "The check has not finished."
    assert "Compared 500 documents of about 2,000 (25.0 %), 250.0 kB, in 2 collections." in lines


def test_only_the_first_mismatches_are_shown() -> None:
    lines = text(FAILED, *range(1000)).splitlines()
    assert "Documents that differ: first 20 of 1,234" in lines
    assert len([line for line in lines if line.startswith("different  shop.orders")]) == 20


def test_long_and_odd_texts_stay_in_one_line() -> None:
    fields = (FieldDifference("a\n\x1b[31mb", "x" * 1000),)
    progress = replace(FAILED, mismatches=MismatchCounts({Difference.CONTENT: 1}, {ORDERS: 1}))
    lines = report(progress, [document_mismatch("\x1b\n" * 500, fields=fields)], [])
    (row,) = (line for line in lines if line.startswith("different  shop.orders"))
    assert len(row) < 200 and row.isprintable() and "a  [31mb: xxx" in row
    assert "Documents that differ" in lines


def test_a_difference_of_the_whole_document_has_no_path() -> None:
    fields = (FieldDifference("", "the order of the fields differs"),)
    lines = report(FAILED, [document_mismatch(7, fields=fields)], [])
    assert any(line.endswith("int 7  the order of the fields differs") for line in lines)


def test_one_document_per_second_is_singular() -> None:
    progress = replace(FAILED, first=Amounts(50, 50, 5_000, 5_000, 1))
    assert "read 1 document and 100 bytes per second" in text(progress)


def test_names_cannot_forge_lines_or_control_a_terminal() -> None:
    """The clusters' users choose the names in the reasons, the notes and the tables."""
    name = "a\nPASSED: b\u2028PASSED: c\x1b[2J\x9b\u202e"
    odd = Namespace("shop", name)
    document = DocumentMismatch(odd, bson.encode({"_id": name}), Difference.CONTENT)
    definition = DefinitionMismatch(odd, Difference.CONTENT, Aspect.INDEX, name)
    progress = replace(
        FAILED,
        verdict=Verdict(Outcome.FAILED, (f"{odd} differs.",)),
        notes=(f"{odd}: not compared",),
        namespaces={odd: NamespaceProgress()},
    )
    lines = report(
        progress,
        [replace(document_mismatch(7), mismatch=document)],
        [replace(DEFINITION_MISMATCH, mismatch=definition)],
    )
    assert all(each.isprintable() and not each.lstrip().startswith("PASSED") for each in lines)
    starting = [number for number, each in enumerate(lines) if each.startswith("FAILED")]
    assert starting == [0, len(lines) - 1]
    assert r"- shop.a\nPASSED: b\u2028PASSED: c\x1b[2J\x9b\u202e: not compared" in lines


def test_the_largest_namespaces_are_shown() -> None:
    many = {
        Namespace("d", f"c{number}"): NamespaceProgress(size=number, tasks=1)
        for number in range(150)
    }
    lines = report(replace(PASSED, namespaces=many), [], [])
    assert "Namespaces: first 100 of 150" in lines
    assert [line.split()[0] for line in lines if line.startswith("d.c")][0] == "d.c149"


@pytest.mark.parametrize(
    "part, whole, shown",
    [
        (0, 10, "0.0 %"),
        (1, 10, "10.0 %"),
        (999_999, 1_000_000, "99.9 %"),
        (1, 1_000_000, "0.1 %"),
        (10, 10, "100 %"),
        (11, 10, "100 %"),
        (0, 0, "100 %"),
        (5, None, ""),
    ],
)
def test_a_share(part: int, whole: int | None, shown: str) -> None:
    assert _percent(part, whole) == shown


@given(st.integers(1, 1 << 60), st.integers(1, 1 << 60))
def test_a_partial_share_is_never_shown_as_100_percent(one: int, other: int) -> None:
    part, whole = min(one, other), max(one, other)
    assert (_percent(part, whole) == "100 %") == (part == whole)
    assert _percent(part, whole) != "0.0 %"


@pytest.mark.parametrize(
    "size, shown",
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_000, "1.0 kB"),
        (1_234_567, "1.2 MB"),
        (5e18, "5,000.0 PB"),
    ],
)
def test_a_size_as_text(size: float, shown: str) -> None:
    assert size_text(size) == shown


@pytest.mark.parametrize(
    "seconds, shown",
    [
        (0, "0.0 s"),
        (59.94, "59.9 s"),
        (60, "1 min 0 s"),
        (3599.9, "59 min 59 s"),
        (3600, "1 h 0 min"),
        (4_000_000, "1,111 h 6 min"),
        (-1, "0.0 s"),
    ],
)
def test_a_duration_as_text(seconds: float, shown: str) -> None:
    assert duration_text(seconds) == shown


def test_the_report_of_an_empty_check() -> None:
    progress = CheckProgress(started=1.0, ended=1.0, first=Amounts())
    assert "Compared 0 documents, 0 bytes, in 0 collections." in report(progress, [], [])
