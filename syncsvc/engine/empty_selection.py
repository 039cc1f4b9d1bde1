"""Warns while the filters of a sync select no collection and no view of the source, which may be a typing error."""

from __future__ import annotations

from syncsvc.engine.run.context import RunContext
from syncsvc.figures.progress import WarningKind
from syncsvc.rules.unmatched_filters import SELECTS_NOTHING
from syncsvc.state import Phase
from verifier.runtime.tasks import SLOW_POLL, StopToken


def watch_selection(context: RunContext, stop: StopToken) -> None:
    """Warn until the sync has its first collection or view, then return.

    Returns immediately if the sync has no filter. If stopped, as by a commit, the warning stays: nothing was copied.
    """
    namespaces = context.run.record.options.namespaces
    if not (namespaces.include or namespaces.exclude):
        return
    while context.run.record.phase is Phase.INITIALIZING or _is_empty(context):
        if context.run.record.phase is not Phase.INITIALIZING:
            context.progress.warn(
                WarningKind.NOTHING_SELECTED,
                f"{SELECTS_NOTHING}, so nothing is synced. If this is a mistake, reset the sync, and start it with "
                "corrected filters: a preflight names those that match nothing. Otherwise, the warning ends when the "
                "first collection or view that the filters select is created.",
            )
        stop.sleep(SLOW_POLL)
    context.progress.end_warning(WarningKind.NOTHING_SELECTED)


def _is_empty(context: RunContext) -> bool:
    return next(iter(context.registry), None) is None and not context.views.load()
