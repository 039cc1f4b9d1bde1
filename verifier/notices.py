"""Tells a webhook what changes in a check: its phase, its verdict, and long waits of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import time
from typing import Any, NamedTuple

from verifier.compare.check_progress import CheckProgress
from verifier.runtime.waits import LongWait
from verifier.runtime.webhook import Webhook


class Notice(NamedTuple):
    """A notice: its event and its fields."""

    event: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Told:
    """The progress of the check and the texts of the active long waits, as they were last sent to the webhook."""

    progress: CheckProgress = CheckProgress()
    waits: Mapping[str, str] = field(default_factory=dict)


def news(
    told: Told, progress: CheckProgress, waits: tuple[LongWait, ...], began: float
) -> tuple[Told, list[Notice]]:
    """Return a notice of each change since `told`, and the new `Told` after these notices are sent.

    `began` is when the process began, in UNIX seconds: a check that had ended before is no news.
    """
    texts = {each.what: told.waits.get(each.what, each.text) for each in waits}
    notices = [*_of_check(told.progress, progress, began), *_of_waits(told.waits, texts, progress)]
    return Told(progress, texts), notices


def _of_check(before: CheckProgress, now: CheckProgress, began: float) -> Iterator[Notice]:
    # A short check can begin and end between two looks.
    ended = now.ended is not None and now.ended > began and now.ended != before.ended
    if now.phase is before.phase and not ended:
        return
    verdict = now.verdict
    yield Notice(
        "phase",
        {
            "phase": now.phase.value,
            "previousPhase": before.phase.value,
            "verdict": None if verdict is None else verdict.outcome.value,
            "reasons": [] if verdict is None else list(verdict.reasons),
            "error": None if verdict is None else verdict.error,
            "warning": None,
        },
    )


def _of_waits(
    before: Mapping[str, str], after: Mapping[str, str], now: CheckProgress
) -> Iterator[Notice]:
    phase = {"phase": now.phase.value, "previousPhase": None}
    fields: dict[str, Any] = {**phase, "verdict": None, "reasons": [], "error": None}
    for event, ones, others in (("warningEnded", before, after), ("warningBegan", after, before)):
        for what in ones.keys() - others.keys():
            yield Notice(event, {**fields, "warning": {"kind": "long wait", "text": ones[what]}})


class Notifier:
    """Posts the notices of one process to its webhook. `take` returns the progress of the check."""

    def __init__(self, webhook: Webhook, take: Callable[[], CheckProgress]) -> None:
        self._webhook = webhook
        self._take = take
        self._began = time()
        self._told = Told()

    def watch(self, waits: tuple[LongWait, ...]) -> None:
        """Post what has changed since the last call. `waits` are the long waits of the process."""
        self._told, notices = news(self._told, self._take(), waits, self._began)
        for each in notices:
            self._webhook.post(each.event, time(), **each.fields)
