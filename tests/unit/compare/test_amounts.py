"""Tests the counters of a check: compared documents and bytes in total and by namespace, mismatches, rates, lags."""

from __future__ import annotations

import bson

from verifier.cluster.namespace import Namespace
from verifier.compare.amounts import Lag, Rate, Tally
from verifier.compare.check_progress import Amounts, MismatchCounts, NamespaceProgress
from verifier.compare.mismatch import Aspect, DefinitionMismatch, Difference, DocumentMismatch

FIRST, SECOND = Namespace("d", "a"), Namespace("d", "b")


def test_amounts_are_summed() -> None:
    tally = Tally()
    tally.expect(FIRST, 10, 100)
    tally.expect(FIRST, 5, 50)
    tally.expect(SECOND, 1, None)
    tally.compared(FIRST, 7, 70)
    tally.compared(SECOND, 2, 20, live=False)
    tally.task_done(FIRST)
    assert tally.amounts == Amounts(9, 16, 90, 150, 2)
    assert tally.namespaces == {
        FIRST: NamespaceProgress(7, 15, 70, 150, 2, 1),
        SECOND: NamespaceProgress(2, 1, 20, None, 1, 0),
    }
    assert tally.documents_per_second == 7
    assert tally.size_per_second == 70


def test_an_unknown_total_is_none() -> None:
    tally = Tally()
    assert tally.amounts == Amounts()
    tally.expect(FIRST, 10, None)
    assert tally.amounts.total_size is None


def test_mismatches_are_counted_by_kind_and_namespace() -> None:
    tally = Tally()
    for difference in (Difference.MISSING, Difference.MISSING, Difference.CONTENT):
        tally.found(DocumentMismatch(FIRST, bson.encode({"_id": 1}), difference))
    tally.found(DefinitionMismatch(SECOND, Difference.EXTRA, Aspect.INDEX))
    kinds = {Difference.MISSING: 2, Difference.CONTENT: 1}
    assert tally.mismatches == MismatchCounts(kinds, {FIRST: 3}, 1)


def test_a_rate_counts_the_recent_additions() -> None:
    rate = Rate()
    rate.add(30)
    rate.add(12)
    assert rate.per_second == 42


def test_a_lag_is_known_while_pages_come() -> None:
    lag = Lag()
    assert lag.seconds() is None
    lag.set(7)
    assert lag.seconds() == 7


def test_a_lag_is_unknown_when_no_page_has_come_for_a_while() -> None:
    lag = Lag(holds=-1.0)
    lag.set(0)
    assert lag.seconds() is None
    assert lag.seconds(ended=True) == 0
