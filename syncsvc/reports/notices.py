"""Finds the notices for a webhook: the changes of a sync since the last notice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from syncsvc import errors
from syncsvc.figures.progress import StateChange
from syncsvc.reports.sync import Sync, phase_shown
from syncsvc.state import State

# The kind of the warnings of long waits. All other kinds are those of the metric `mongosync_warning`.
LONG_WAIT = "long wait"


class Notice(NamedTuple):
    """A message to the webhook about one change of the sync, at the time `at` in UNIX seconds.

    `event` is the kind of the change: state, warningBegan or warningEnded. `fields` are further fields of the message.
    """

    event: str
    at: float
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Told:
    """The state and the active warnings that were last sent to the webhook, and the number of the newest state change.

    The keys of `warnings` identify the warnings, because their texts change.
    """

    number: int = 0
    state: State | None = None
    warnings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def news(told: Told, sync: Sync, now: float) -> tuple[Told, list[Notice]]:
    """Return the `Told` to pass to the next call, and the notices to send now, about the changes since `told`.

    There is one notice for each state change, and for each warning that is new or no longer active. `now` is in UNIX
    seconds. No notice is sent for the state INITIALIZING, or for the failure by which an active daemon with `--standby`
    becomes a standby. A standby sends only the end of each warning that it sent as the active daemon; the daemon that
    is active now sends its own warnings.
    """
    newest = sync.snapshot.states[-1].number if sync.snapshot.states else told.number
    if sync.is_standby:
        return Told(newest), list(_of_warnings(told.warnings, {}, sync, now))
    changes = [each for each in sync.snapshot.states if each.number > told.number]
    shown = [each for each in changes if _is_told(each, sync)]
    notices = list(_of_states(told.state, shown, sync))
    warnings = _warnings(sync)
    notices += _of_warnings(told.warnings, warnings, sync, now)
    # The notice of the end of a warning repeats the text with which the warning began.
    kept = {key: told.warnings.get(key, each) for key, each in warnings.items()}
    return Told(newest, shown[-1].state if shown else told.state, kept), notices


def _is_told(change: StateChange, sync: Sync) -> bool:
    """Return whether to send a notice of a state change; False at the start, and before a change to a standby."""
    superseded = sync.standing is not None and change.error == errors.SUPERSEDED.name
    return change.state is not State.INITIALIZING and not superseded


def _of_states(before: State | None, changes: list[StateChange], sync: Sync) -> Iterator[Notice]:
    for each in changes:
        fields = {
            "state": each.state.value,
            "previousState": None if before is None else before.value,
            "info": _info(sync),
            "error": each.error,
            "errorDescription": each.description,
            "warning": None,
        }
        yield Notice("state", each.at, fields)
        before = each.state


def _of_warnings(
    before: Mapping[str, Mapping[str, str]],
    after: Mapping[str, Mapping[str, str]],
    sync: Sync,
    now: float,
) -> Iterator[Notice]:
    state = {"state": sync.state.value, "previousState": None, "info": _info(sync)}
    fields = {**state, "error": None, "errorDescription": None}
    for key in before.keys() - after.keys():
        yield Notice("warningEnded", now, {**fields, "warning": before[key]})
    for key in after.keys() - before.keys():
        yield Notice("warningBegan", now, {**fields, "warning": after[key]})


def _info(sync: Sync) -> str | None:
    return None if sync.record is None else phase_shown(sync.record).value


def _warnings(sync: Sync) -> dict[str, Mapping[str, str]]:
    """Return the active warnings in the progress, by keys that stay the same while a warning lasts."""
    active = sync.snapshot.warnings.items()
    shown = {each.value: {"kind": each.value, "text": text} for each, text in active}
    waits = {each.what: {"kind": LONG_WAIT, "text": each.text} for each in sync.snapshot.waits}
    return {**shown, **waits}
