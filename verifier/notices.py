"""Notifies a webhook of changes: the phase and verdict of a check, and the beginning and end of long waits.

A long wait (`verifier.runtime.waits`) is, for example, a call to a cluster that fails and is retried for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import time
from typing import Any, NamedTuple

from verifier.compare.check_progress import CheckProgress
from verifier.runtime.waits import LongWait
from verifier.runtime.webhook import Webhook


class Notice(NamedTuple):
    """One message to the webhook: its event, the time of the event in UNIX seconds, and its fields."""

    event: str
    at: float
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Told:
    """The state that the notices so far describe: the progress of the check, and the texts of the active long waits.

    The keys of `waits` are the descriptions of the waits (`LongWait.what`).
    """

    progress: CheckProgress = CheckProgress()
    waits: Mapping[str, str] = field(default_factory=dict)


def news(
    told: Told, progress: CheckProgress, waits: tuple[LongWait, ...], now: float
) -> tuple[Told, list[Notice]]:
    """Return the `Told` to pass to the next call, and the notices to send now, which tell what changed since `told`.

    `now` is in UNIX seconds. If the check ended before this process began, its verdict is sent again, because the
    earlier process may have been killed before it could deliver the verdict.
    """
    texts = {each.what: told.waits.get(each.what, each.text) for each in waits}
    notices = [
        *_of_check(told.progress, progress, now),
        *_of_waits(told.waits, texts, progress, now),
    ]
    return Told(progress, texts), notices


def _of_check(before: CheckProgress, after: CheckProgress, now: float) -> Iterator[Notice]:
    # A short check can begin and end between two calls.
    ended = after.ended if after.ended != before.ended else None
    if after.phase is before.phase and ended is None:
        return
    verdict = after.verdict
    yield Notice(
        "phase",
        now if ended is None else ended,
        {
            "phase": after.phase.value,
            "previousPhase": before.phase.value,
            "verdict": None if verdict is None else verdict.outcome.value,
            "reasons": [] if verdict is None else list(verdict.reasons),
            "error": None if verdict is None else verdict.error,
            "warning": None,
        },
    )


def _of_waits(
    before: Mapping[str, str], after: Mapping[str, str], progress: CheckProgress, now: float
) -> Iterator[Notice]:
    phase = {"phase": progress.phase.value, "previousPhase": None}
    fields: dict[str, Any] = {**phase, "verdict": None, "reasons": [], "error": None}
    for event, ones, others in (("warningEnded", before, after), ("warningBegan", after, before)):
        for what in ones.keys() - others.keys():
            yield Notice(
                event, now, {**fields, "warning": {"kind": "long wait", "text": ones[what]}}
            )


class Notifier:
    """Posts the notices of one process to its webhook. `take` returns the progress of the check."""

    def __init__(self, webhook: Webhook, take: Callable[[], CheckProgress]) -> None:
        self._webhook = webhook
        self._take = take
        self._told = Told()

    def watch(self, waits: tuple[LongWait, ...]) -> None:
        """Post notices of what has changed since the last call. `waits` are the long waits of the process."""
        self._told, notices = news(self._told, self._take(), waits, time())
        for each in notices:
            self._webhook.post(each.event, each.at, **each.fields)
