"""Logs the progress and the report of a check."""

from __future__ import annotations

import logging

from pymongo.errors import PyMongoError

from verifier.api import Service
from verifier.compare.check_progress import CheckProgress, Phase
from verifier.reports.lines import SHOWN, report
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import POLL, StopToken

_log = logging.getLogger(__name__)


def announce_progress(service: Service, interval: float, stop: StopToken) -> None:
    """Log the progress every `interval` seconds while a check runs.

    This never returns. Raises `Cancelled` when `stop` is stopped.
    """
    while True:
        stop.sleep(interval)
        progress = service.progress()
        if progress.phase is not Phase.IDLE:
            _log.info(
                "Progress.",
                extra={
                    "phase": progress.phase.value,
                    "generation": progress.generation,
                    "documents": progress.amounts.documents,
                    "totalDocuments": progress.amounts.total_documents,
                    "documentsPerSecond": progress.documents_per_second,
                    "differingDocuments": sum(progress.mismatches.documents.values()),
                    "sourceLagSeconds": progress.source.lag_seconds,
                    "destinationLagSeconds": progress.destination.lag_seconds,
                },
            )


def announce_report(service: Service) -> None:
    """Log the report of the last check, line by line, unless another check has already begun."""
    if service.progress().phase is Phase.IDLE:
        for line in filter(None, report_lines(service)):
            _log.info("%s", line)


def wait_for_end(service: Service, stop: StopToken) -> CheckProgress:
    """Wait until the check has ended, and return its final progress. Raises `Cancelled` when `stop` is stopped."""
    while (progress := service.progress()).phase is not Phase.IDLE:
        stop.sleep(POLL)
    return progress


def report_lines(service: Service) -> list[str]:
    """Return the lines of the report of the check that has ended.

    If the mismatches cannot be read, log a warning and leave them out.
    """
    progress = service.progress()
    try:
        documents = [*service.document_mismatches(None, SHOWN, 0.0)]
        definitions = [*service.definition_mismatches(None, SHOWN)]
    except (OperationError, PyMongoError) as error:
        _log.warning(
            "The mismatches cannot be read, so the report shows only the number of mismatches, and no list.",
            extra={"error": str(error)},
        )
        documents, definitions = [], []
    return report(progress, documents, definitions)
