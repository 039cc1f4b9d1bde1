"""Warns while the filters of a sync select no collection and no view of the source, which may be a typing error."""

from __future__ import annotations

from syncsvc.engine.run.context import RunContext
from syncsvc.figures.progress import WarningKind
from syncsvc.rules.unmatched_filters import SELECTS_NOTHING
from syncsvc.state import Phase
from verifier.runtime.tasks import SLOW_POLL, StopToken

# How often to look for the first collection or view, in seconds. Each look writes a no-op to the destination's oplog.
_INTERVAL = 5.0


def watch_selection(context: RunContext, stop: StopToken) -> None:
    """Warn until the sync has its first collection or view, then return.

    Returns immediately if the sync has no namespace filter. Raises `Cancelled` if stopped, for example by a commit: the
    warning then stays, because nothing was copied. Also raises the driver's errors.
    """
    namespaces = context.run.record.options.namespaces
    if not (namespaces.include or namespaces.exclude):
        return
    while context.run.record.phase is Phase.INITIALIZING:
        stop.sleep(SLOW_POLL)
    while _is_empty(context):
        context.progress.warn(
            WarningKind.NOTHING_SELECTED,
            f"{SELECTS_NOTHING}, so nothing is synced. If this is a mistake, reset the sync (after the commit: drop "
            "its metadata, see docs/howto/clean-up), and start it with corrected filters: a preflight names those that "
            "match nothing. Otherwise, you need not do anything: until the commit, the sync copies each selected "
            "collection and view when it is created.",
        )
        stop.sleep(_INTERVAL)
    context.progress.end_warning(WarningKind.NOTHING_SELECTED)


def _is_empty(context: RunContext) -> bool:
    return next(iter(context.registry), None) is None and not context.views.load()
