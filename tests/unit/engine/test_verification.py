"""Tests when the verification allows a commit, and the errors of a verification that fails or cannot be completed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pymongo.errors import OperationFailure

from syncsvc import errors
from syncsvc.engine.verification import Verification, incompletion, is_ready, refusal
from syncsvc.figures.progress import Progress, WarningKind
from syncsvc.tuning import Tuning
from tests.unit.engine.contexts import context_with
from tests.unit.preflight.values import options
from tests.unit.syncsvc.records import START, run_record
from verifier.cluster import failures
from verifier.cluster.document_filters import DOCUMENT_FILTER_FAILED
from verifier.compare import errors as of_checks
from verifier.compare.check_progress import Amounts, Changes, CheckProgress, Outcome, Verdict
from verifier.compare.record import CheckRecord, Request, SideRecord
from verifier.runtime.errors import INTERNAL_ERROR, ErrorKind, OperationError
from verifier.runtime.tasks import StopToken, TaskGroup

PASSED = Verdict(Outcome.PASSED)


def changes(lag: int | None, recheck_lag: int | None) -> Changes:
    return Changes(lag_seconds=lag, recheck_lag_seconds=recheck_lag)


@pytest.mark.parametrize(
    "first, source, destination, verdict, ready",
    [
        (None, (0, 0), (0, 0), None, False),
        (Amounts(), (None, 0), (0, 0), None, False),
        (Amounts(), (0, 0), (None, 0), None, False),
        (Amounts(), (0, None), (0, 0), None, False),
        (Amounts(), (0, 0), (0, None), None, False),
        (Amounts(), (31, 0), (0, 0), None, False),
        (Amounts(), (0, 0), (31, 0), None, False),
        (Amounts(), (0, 61), (0, 0), None, False),
        (Amounts(), (0, 0), (0, 61), None, False),
        (Amounts(), (30, 60), (30, 60), None, True),
        (Amounts(), (None, None), (None, None), PASSED, True),
    ],
)
def test_a_check_is_ready_after_the_first_pass_with_a_short_lag(
    first: Amounts | None,
    source: tuple[int | None, int | None],
    destination: tuple[int | None, int | None],
    verdict: Verdict | None,
    ready: bool,
) -> None:
    progress = CheckProgress(
        first=first,
        source=changes(*source),
        destination=changes(*destination),
        verdict=verdict,
    )
    assert is_ready(progress) is ready


def test_a_passed_check_does_not_refuse_the_commit() -> None:
    assert refusal(PASSED) is None


@pytest.mark.parametrize(
    "outcome, kind",
    [
        (Outcome.FAILED, errors.VERIFICATION_FAILED),
        (Outcome.INCOMPLETE, errors.VERIFICATION_INCOMPLETE),
    ],
)
def test_a_refusal_names_the_reasons_and_the_mismatches_endpoint(
    outcome: Outcome, kind: ErrorKind
) -> None:
    error = refusal(Verdict(outcome, ("Two documents are different.", "d.c is missing.")))
    assert error is not None and error.kind is kind
    assert error.description == ("Two documents are different. d.c is missing.")
    assert "/api/v1/mismatches" in kind.remedy


@pytest.mark.parametrize(
    "kind, told",
    [
        (of_checks.SUPERSEDED, errors.SUPERSEDED),
        (errors.SUPERSEDED, errors.SUPERSEDED),
        (of_checks.INCOMPATIBLE_METADATA, errors.INCOMPATIBLE_METADATA),
        (of_checks.METADATA_BLOCKED, failures.NOT_AUTHORIZED),
        (failures.CLUSTER_UNREACHABLE, failures.CLUSTER_UNREACHABLE),
        (failures.NOT_AUTHORIZED, failures.NOT_AUTHORIZED),
        (failures.UNEXPECTED_SERVER_ERROR, failures.UNEXPECTED_SERVER_ERROR),
        (INTERNAL_ERROR, errors.VERIFICATION_INCOMPLETE),
        (failures.EVENT_TOO_LARGE, errors.VERIFICATION_INCOMPLETE),
    ],
)
def test_a_check_that_cannot_continue_has_an_error_name(kind: ErrorKind, told: ErrorKind) -> None:
    error = incompletion(OperationError(kind, "Why."))
    assert isinstance(error, OperationError) and error.kind == told
    assert "Why." in error.description


def test_an_unknown_error_of_a_server_says_nothing_about_the_data() -> None:
    error = incompletion(failures.named(OperationFailure("no", 8, {"errmsg": "no"})))
    assert isinstance(error, OperationError) and error.kind == failures.UNEXPECTED_SERVER_ERROR
    assert "no (code 8)" in error.description


def run_failing_check(*kinds: ErrorKind) -> list[WarningKind]:
    """Run a check that raises a group with one error of each kind, in this order; return the new warnings.

    All errors except the first are in a nested group, as if threads of a generation had raised them.
    """
    progress = Progress()
    run = SimpleNamespace(record=run_record(options=options(verification=False)))
    context = context_with(run=run, tuning=Tuning(), progress=progress)

    def fail() -> None:
        first, *others = (OperationError(kind, "Why.") for kind in kinds)
        inner = BaseExceptionGroup("the generation", others)
        raise BaseExceptionGroup("the check", [first, inner])

    check: Any = SimpleNamespace(run=fail)
    Verification(context, TaskGroup("test", StopToken()))._run_check(check)
    return [*progress.snapshot.warnings]


def test_a_passed_check_ends_the_warning_of_an_earlier_one() -> None:
    progress = Progress()
    progress.warn(WarningKind.CHECK_REPEATED, "The verification started again.")
    side = SideRecord(START)
    checks = SimpleNamespace(
        load=lambda: None, record=CheckRecord("", ("", ""), Request(), 0.0, side, side)
    )
    run = SimpleNamespace(record=run_record(options=options()), revise=lambda change: None)
    context = context_with(run=run, tuning=Tuning(), progress=progress, checks=checks)
    verification = Verification(context, TaskGroup("test", StopToken()))
    verification._verdict = PASSED
    verification.finish(START.time)
    assert not progress.snapshot.warnings


def test_the_first_of_several_errors_of_a_check_counts() -> None:
    lost, filter_failed = failures.OPLOG_WINDOW_EXCEEDED, DOCUMENT_FILTER_FAILED
    assert run_failing_check(lost, filter_failed, filter_failed) == [WarningKind.CHECK_REPEATED]
    with pytest.raises(OperationError) as raised:
        run_failing_check(filter_failed, lost, filter_failed)
    assert raised.value.kind == errors.VERIFICATION_INCOMPLETE
    assert "DocumentFilterFailed: Why." in raised.value.description
