"""Opens the change stream of the source, with options that both clusters support."""

from __future__ import annotations

import logging

from syncsvc.engine.documents.statements import offers_raw_diffs
from syncsvc.engine.run.context import RunContext
from verifier.cluster.changes import EVENTS_A_PAGE, ChangeStream
from verifier.cluster.features import RAW_UPDATES
from verifier.cluster.namespace import Namespace
from verifier.cluster.reading import read
from verifier.runtime.tasks import StopToken

_log = logging.getLogger(__name__)

_SCRATCH = "scratch"


def event_stream(context: RunContext, stop: StopToken) -> ChangeStream:
    """Return the change stream of the source with all events that this sync needs.

    Update events contain the diffs of the oplog, if the source reports them and the destination can apply them. Raises
    the driver's errors and `Cancelled`.
    """
    raw = read(lambda: _offers_raw_diffs(context), stop)
    how = "applying the diffs in the oplog" if raw else "reading the documents again"
    _log.info("Chose the method to apply updates of documents.", extra={"method": how})
    return ChangeStream(
        context.source_client,
        context.source_facts,
        raw,
        namespaces=context.run.record.options.namespaces,
        wait_ms=context.stream_wait_ms,
        page_events=context.link_factor * EVENTS_A_PAGE,
    )


def _offers_raw_diffs(context: RunContext) -> bool:
    """Return whether the source reports the oplog's own diffs, and the destination applies them.

    The test may write a document on the destination, into a database with the name of the metadata database.
    """
    if not context.source_facts.offers(RAW_UPDATES):
        return False
    return offers_raw_diffs(context.document_writer, Namespace(context.metadata.name, _SCRATCH))
