"""The metrics of a check at `GET /metrics`: a table of functions that read its progress.

The functions here have no side effects.
"""

from __future__ import annotations

from collections.abc import Callable

from verifier.compare.check_progress import LASTING, Amounts, Changes, CheckProgress, Outcome, Phase
from verifier.compare.mismatch import Difference
from verifier.runtime.metrics import Kind, Metric, Values, one_hot, single
from verifier.runtime.webhook import metrics_of


def _of_check(read: Callable[[CheckProgress], float | None]) -> Callable[[CheckProgress], Values]:
    """Return a function for `Metric.read` that reads one value of a check. The value is None before the first check."""
    return single(lambda progress: None if progress.started is None else read(progress))


def _of_amounts(read: Callable[[Amounts], float | None]) -> Callable[[CheckProgress], Values]:
    """Return a function for `Metric.read` that reads one of the amounts of generation 0.

    The value is None as long as no comparison of documents is planned.
    """

    def of(progress: CheckProgress) -> float | None:
        amounts = progress.first or progress.amounts
        return None if amounts == Amounts() else read(amounts)

    return single(of)


def _lags(progress: CheckProgress) -> Values:
    """Return the lag of the change stream of each cluster, in seconds; empty unless a check runs."""
    if progress.phase is Phase.IDLE:
        return {}
    return {(name,): changes.lag_seconds for name, changes in _changes(progress).items()}


def _rechecked(progress: CheckProgress) -> Values:
    times = {name: changes.rechecked for name, changes in _changes(progress).items()}
    return {(name,): None if time is None else time.time for name, time in times.items()}


def _changes(progress: CheckProgress) -> dict[str, Changes]:
    return {"source": progress.source, "destination": progress.destination}


def _events(progress: CheckProgress) -> Values:
    return {
        (name, operation): count
        for name, changes in _changes(progress).items()
        for operation, count in changes.seen.items()
    }


def _verdict(progress: CheckProgress) -> Values:
    return {} if progress.verdict is None else one_hot(Outcome, progress.verdict.outcome)


def _error(progress: CheckProgress) -> Values:
    error = None if progress.verdict is None else progress.verdict.error
    return {} if error is None else {(error,): 1.0}


def _tasks(progress: CheckProgress) -> Values:
    """Return the number of tasks of the current generation by status; empty before they are planned."""
    tasks = progress.tasks
    if not tasks.total:
        return {}
    return {
        ("added",): tasks.added,
        ("processing",): tasks.processing,
        ("completed",): tasks.completed,
        ("failed",): tasks.failed,
    }


def _documents(progress: CheckProgress) -> Values:
    if progress.started is None:
        return {}
    counts = progress.mismatches.documents
    return {(each.value,): counts.get(each, 0) for each in Difference}


TABLE: tuple[Metric[CheckProgress], ...] = (
    Metric(
        Kind.GAUGE,
        "verifier_phase",
        "1 for the current phase of the verifier, 0 for the other phases.",
        ("phase",),
        lambda progress: one_hot(Phase, progress.phase),
    ),
    Metric(
        Kind.GAUGE,
        "verifier_verdict",
        "1 for the verdict of a check that has ended, 0 for the other verdicts.",
        ("verdict",),
        _verdict,
    ),
    Metric(
        Kind.GAUGE,
        "verifier_failure",
        "1 for the error that made the check incomplete.",
        ("error",),
        _error,
    ),
    Metric(
        Kind.GAUGE,
        "verifier_start_time_seconds",
        "When the check began, in seconds since 1970.",
        (),
        single(lambda progress: progress.started),
    ),
    Metric(
        Kind.GAUGE,
        "verifier_end_time_seconds",
        "When the check ended, in seconds since 1970.",
        (),
        single(lambda progress: progress.ended),
    ),
    Metric(
        Kind.GAUGE,
        "verifier_writes_off",
        "1 after the check received writesOff, else 0.",
        (),
        _of_check(lambda progress: progress.writes_off),
    ),
    Metric(
        Kind.GAUGE,
        "verifier_generation",
        "The number of the current generation (pass) of the check; the first one is 0.",
        (),
        single(lambda progress: progress.generation),
    ),
    Metric(
        Kind.GAUGE,
        "verifier_tasks",
        "Tasks of the current generation by status: added, processing, completed (no difference) or failed "
        "(difference; after an incomplete check, also the tasks that were not completed).",
        ("status",),
        _tasks,
    ),
    Metric(
        Kind.GAUGE,
        "verifier_compared_documents",
        "Documents that the first generation of the check has compared.",
        (),
        _of_amounts(lambda amounts: amounts.documents),
    ),
    Metric(
        Kind.GAUGE,
        "verifier_estimated_documents",
        "Estimated number of documents that the first generation of the check compares.",
        (),
        _of_amounts(lambda amounts: amounts.total_documents),
    ),
    Metric(
        Kind.GAUGE,
        "verifier_compared_bytes",
        "Bytes of the source that the first generation of the check has compared.",
        (),
        _of_amounts(lambda amounts: amounts.size),
    ),
    Metric(
        Kind.GAUGE,
        "verifier_estimated_bytes",
        "Estimated bytes of the source that the first generation of the check compares.",
        (),
        _of_amounts(lambda amounts: amounts.total_size),
    ),
    Metric(
        Kind.COUNTER,
        "verifier_rechecked_documents_total",
        "Documents rechecked by all generations of the check after the first one.",
        (),
        _of_check(lambda progress: progress.rechecked),
    ),
    Metric(
        Kind.GAUGE,
        "verifier_document_mismatches",
        "Documents that differ, by the type of difference that GET /api/v1/docMismatches shows.",
        ("type",),
        _documents,
    ),
    Metric(
        Kind.GAUGE,
        "verifier_lasting_document_mismatches",
        f"Documents that have differed for at least {LASTING} seconds without a change; 0 during the first "
        "generation.",
        (),
        _of_check(lambda progress: progress.mismatches.lasting),
    ),
    Metric(
        Kind.GAUGE,
        "verifier_definition_mismatches",
        "Number of differences in definitions and in numbers of documents, which GET /api/v1/nsMismatches lists.",
        (),
        _of_check(lambda progress: progress.mismatches.definitions),
    ),
    Metric(
        Kind.GAUGE,
        "verifier_change_events",
        "Change events seen since the check began, by cluster and operation.",
        ("cluster", "operation"),
        _events,
    ),
    Metric(
        Kind.GAUGE,
        "verifier_lag_seconds",
        "The delay of the verifier behind the change events of each cluster, in seconds.",
        ("cluster",),
        _lags,
    ),
    Metric(
        Kind.GAUGE,
        "verifier_rechecked_time_seconds",
        "Cluster time up to which all changed documents were compared again, by cluster, in seconds since 1970.",
        ("cluster",),
        _rechecked,
    ),
)
WEBHOOK_TABLE = metrics_of("verifier")
