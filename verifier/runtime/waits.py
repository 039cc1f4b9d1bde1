"""A registry of the waits for which operators may need a warning, in all threads of this process.

An example is a thread that retries a call to a cluster that does not answer. A wait is registered when it begins and
removed when it ends. Waits of `LONG` seconds or more are shown to the operator as warnings, in the log and, by the sync
service, as metrics. Like the log, the registry is global to the process, so that no function needs an extra argument to
register a wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic

# Waits of at least this length are shown, in seconds.
LONG = 15.0
# Poll interval of `watch`, in seconds.
_INTERVAL = 1.0
# The most waits that are shown at once, the oldest first.
_MOST_SHOWN = 10

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Wait:
    """One wait of a thread. `what` describes it, and `remedy` says what the operator can do about it.

    `since` is a time of the monotonic clock, in seconds. A wait that is `expected` may take hours although nothing is
    wrong, such as the wait for an index build.
    """

    what: str
    remedy: str
    since: float
    expected: bool = False


@dataclass(frozen=True)
class LongWait:
    """A wait of at least `LONG` seconds.

    Waits of several threads with the same `what` are shown as one wait, with the duration of the oldest one. See `Wait`
    for `expected`.
    """

    what: str
    remedy: str
    seconds: float
    expected: bool = False

    @property
    def text(self) -> str:
        """Return the warning for the operator: the description of the wait, its beginning, and the remedy."""
        since = datetime.now(UTC) - timedelta(seconds=self.seconds)
        return f"{self.what}, since {since:%Y-%m-%d %H:%M:%S} UTC ({self.seconds:.0f} s). {self.remedy}"


_lock = threading.Lock()  # guards _waits
_waits: set[Wait] = set()


def begin(what: str, remedy: str, expected: bool = False) -> Wait:
    """Register a wait, and return it. See `Wait` for the arguments.

    When the wait is over, the caller must pass it to `end`.
    """
    wait = Wait(what, remedy, monotonic(), expected)
    with _lock:
        _waits.add(wait)
    return wait


def end(wait: Wait) -> None:
    """Remove a wait; no-op if it was removed before."""
    with _lock:
        _waits.discard(wait)


@contextmanager
def waiting(what: str, remedy: str) -> Iterator[None]:
    """Register a wait for the duration of a block. See `Wait` for the arguments."""
    wait = begin(what, remedy)
    try:
        yield
    finally:
        end(wait)


def long_waits() -> tuple[LongWait, ...]:
    """Return the waits that have lasted `LONG` seconds or more, the oldest first; at most ten."""
    now = monotonic()
    with _lock:
        old = sorted((each for each in _waits if now - each.since >= LONG), key=lambda w: w.since)
    oldest: dict[str, Wait] = {}
    for each in old:
        oldest.setdefault(each.what, each)
    shown = list(oldest.values())[:_MOST_SHOWN]
    return tuple(
        LongWait(each.what, each.remedy, now - each.since, each.expected) for each in shown
    )


def watch(show: Callable[[tuple[LongWait, ...]], None], sleep: Callable[[float], None]) -> None:
    """Pass the long waits to `show` every second. Log when a wait becomes long, and when a long wait has ended.

    Ends only if `sleep` or `show` raises.
    """
    known: dict[str, LongWait] = {}
    while True:
        current = {each.what: each for each in long_waits()}
        show(tuple(current.values()))
        for what in current.keys() - known.keys():
            _log.warning(
                "A wait has become long. The field `wait` names the cause and the remedy.",
                extra={"wait": current[what].text},
            )
        for what in known.keys() - current.keys():
            seconds = round(known[what].seconds, 1)
            _log.info(
                "A long wait has ended, or its cause has changed.",
                extra={"wait": what, "seconds": seconds},
            )
        known = current
        sleep(_INTERVAL)
