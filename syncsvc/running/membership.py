"""Warns that this process does not belong to the saved sync of a cluster, for example because of a wrong `--id`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from syncsvc.figures.progress import Progress, WarningKind
from syncsvc.saved.run import RunRecord


def warn_outsider(progress: Progress, instance: str, place: str, runs: Sequence[RunRecord]) -> None:
    """Begin the warning that the instance does not belong to a saved sync, or end it if there is no such sync.

    `runs` are the saved run records, and `place` says where they are, as in "mongosync on cluster1".
    """
    if not runs or instance in _instances(runs):
        progress.end_warning(WarningKind.WRONG_INSTANCE)
        return
    progress.warn(
        WarningKind.WRONG_INSTANCE,
        f"The metadata database {place} holds the sync of {_described(runs)}. This process does not belong to it, "
        f"because its --id is {instance}. To continue or join that sync, restart this process with the --id of one of "
        "these instances that no process runs. To begin another sync to this destination, restart it with a "
        "--syncName of its own. If the sync is no longer needed, see docs/howto/clean-up.",
    )


def _instances(runs: Iterable[RunRecord]) -> dict[str, str]:
    """Return the states of all instances of the sync by their IDs, including the instances that were not started."""
    listed = {name: "not started" for each in runs for name in each.instances}
    return {**listed, **{each.instance: each.state.value for each in runs}}


def _described(runs: Sequence[RunRecord]) -> str:
    found = [f"{name} ({state})" for name, state in _instances(runs).items()]
    return f"the instance{'s' if len(found) > 1 else ''} {', '.join(found)}"
