"""The one retry function. Adapters use it for calls that may be repeated without harm; nobody else retries."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

import tenacity

from verifier.runtime.tasks import StopToken

T = TypeVar("T")

_log = logging.getLogger(__name__)

# The total time a call is repeated before its last error is raised, in seconds: longer than any election.
DEFAULT_LIMIT = 600.0


def retry(
    call: Callable[[], T],
    transient: Callable[[BaseException], bool],
    stop: StopToken,
    limit: float = DEFAULT_LIMIT,
) -> T:
    """Repeat `call` while it fails in a transient way, with growing pauses; raise its last error at the limit.

    The limit counts from the first failure: a call that worked for an hour before it failed is repeated as well.
    Raises `Cancelled` when the token is stopped in a pause.
    """
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(transient),
        stop=_Limit(limit),
        wait=tenacity.wait_exponential_jitter(multiplier=0.1, max=10.0),
        sleep=stop.sleep,
        before_sleep=_report,
        reraise=True,
    )(call)


class _Limit:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._failed_at: float | None = None

    def __call__(self, state: tenacity.RetryCallState) -> bool:
        self._failed_at = self._failed_at or monotonic()
        return monotonic() - self._failed_at > self._seconds


def _report(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    pause = state.next_action.sleep if state.next_action else 0.0
    _log.warning(
        "A call failed and will be repeated.",
        extra={
            "error": str(error),
            "attempt": state.attempt_number,
            "pauseSeconds": round(pause, 2),
        },
    )
