"""The figures of the speed limits: which limits are in force, and which limit slows the sync down."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from syncsvc.limits import Limit, Rates
from syncsvc.source.cluster_load import Load


@dataclass(frozen=True)
class Throttled:
    """The limit that slows the sync down, the reason for this limit, and when the slowdown began (UTC)."""

    limit: Limit
    reason: str
    since: datetime


@dataclass(frozen=True)
class Throttling:
    """The limits of this process at one moment.

    `effective` contains the limits that the process obeys. `throttled` is None while no limit slows the sync down.
    `waited` is the total time for which each limit has delayed threads, in seconds. `loads` contains the measured loads
    of "source" and "destination"; it is empty while the loads are not measured.
    """

    effective: Rates = field(default_factory=dict)
    throttled: Throttled | None = None
    waited: Mapping[Limit, float] = field(default_factory=dict)
    loads: Mapping[str, Load] = field(default_factory=dict)


# The sync counts as throttled for this many seconds after its work has last waited.
_LASTS = 3.0


class Waits:
    """Determines which limit slows the sync down, and since when, from the times that threads wait for each limit."""

    def __init__(self) -> None:
        self._before: Mapping[Limit, float] = {}
        # When each limit last held up a thread (monotonic clock).
        self._newest: dict[Limit, float] = {}
        self._throttled: Throttled | None = None

    def throttled(
        self,
        waited: Mapping[Limit, float],
        reasons: Mapping[Limit, str],
        at: float,
        now: datetime,
    ) -> Throttled | None:
        """Return the limit that slows the sync down; None if no limit does. Call this at least once a second.

        If several limits do, the limit that was returned last is returned again while it is among them.
        `waited` is the total time for which each limit has delayed threads, in seconds. `reasons` are the limits in
        force, each with the reason for it. `at` is the current time of the monotonic clock, `now` the current time in
        UTC.
        """
        for limit, seconds in waited.items():
            if seconds > self._before.get(limit, 0.0):
                self._newest[limit] = at
        self._before = waited
        found = [each for each in reasons if at - self._newest.get(each, -math.inf) <= _LASTS]
        before = self._throttled
        if not found:
            self._throttled = None
        elif before is not None and before.limit in found:
            self._throttled = replace(before, reason=reasons[before.limit])
        else:
            self._throttled = Throttled(found[0], reasons[found[0]], now)
        return self._throttled
