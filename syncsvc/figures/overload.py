"""Decides whether the clusters are overloaded, and computes the rate to which an overload slows a sync down.

The rate follows the rule "additive increase, multiplicative decrease", as TCP does (RFC 5681, section 3.1). D. Chiu and
R. Jain, "Analysis of the increase and decrease algorithms for congestion avoidance in computer networks" (1989), show
that among linear rules, only this one converges to an efficient and fair rate if others share the resource. While the
load is just below a threshold, the rate stays the same, so that it does not oscillate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import median

from syncsvc.limits import Auto
from syncsvc.source.cluster_load import Load

# The median of the newest measurements counts, at most this many: of three, a single slow answer has no effect.
_COUNTED = 3
# Above this share of a threshold, the rate is not raised.
_NEAR = 0.8
# A decrease multiplies the rate by this factor. The next decrease follows at least this many seconds later, when the
# effect of the first one shows.
_DECREASE = 0.7
_EFFECT_AFTER = 3.0
# An increase adds this share of the full rate per second.
_INCREASE = 0.01
# The limit ends when it has grown to this multiple of the full rate, and is never below this share of it.
_ENDS_AT = 1.5
_LEAST = 0.01


def typical(loads: Sequence[Load]) -> Load:
    """Return the median of each value over the last three `loads`; None for a value that is unknown in all three."""
    newest = loads[-_COUNTED:]
    values = {
        name: [value for each in newest if (value := getattr(each, name)) is not None]
        for name in ("latency", "queue", "replication_lag")
    }
    return Load(**{name: median(known) if known else None for name, known in values.items()})


class Pressure(Enum):
    """The load compared with its thresholds: `HIGH` above one, otherwise `NEAR` above 80 % of one, otherwise `LOW`."""

    LOW = 0
    NEAR = 1
    HIGH = 2


def pressure(loads: Mapping[str, Load], auto: Auto) -> tuple[Pressure, str]:
    """Compare the loads, which are keyed by "source" and "destination", with the thresholds of `auto`.

    Return the pressure, and a description of the value that is highest relative to its threshold. Unknown values and
    values without a threshold are ignored; if none is left, the pressure is LOW, and the description is empty.
    """
    worst, why = max(_ratios(loads, auto), default=(0.0, ""))
    if worst > 1:
        return Pressure.HIGH, why
    return (Pressure.NEAR if worst > _NEAR else Pressure.LOW), why


def _ratios(loads: Mapping[str, Load], auto: Auto) -> Iterator[tuple[float, str]]:
    """Yield the ratio of each known value to its threshold, with a text that shows both."""
    latencies = {"source": auto.source_latency_ms, "destination": auto.destination_latency_ms}
    for side, load in loads.items():
        latency = None if load.latency is None else 1000 * load.latency
        compared = (
            (
                latency,
                latencies[side],
                "the latency of the {} is {:.0f} ms, and the threshold is {} ms",
            ),
            (
                load.queue,
                auto.queue,
                "{1:.0f} operations wait on the {0}, and the threshold is {2}",
            ),
            (
                load.replication_lag,
                auto.replication_lag_seconds,
                "the slowest secondary of the {} lags by {:.0f} s, and the threshold is {} s",
            ),
        )
        for value, threshold, text in compared:
            if value is not None and threshold is not None:
                yield value / threshold, text.format(side, value, threshold)


@dataclass(frozen=True)
class Flow:
    """The rate of one kind of work, per second. Work that is not faster than `harmless` hardly loads any cluster.

    `full` estimates the rate without a limit: it is the highest rate so far.
    """

    harmless: float
    rate: float = 0.0
    full: float = 0.0

    def at(self, rate: float) -> Flow:
        """Return the flow, updated with a newly measured rate."""
        return replace(self, rate=rate, full=max(self.full, rate))

    @property
    def least(self) -> float:
        """Return the lowest limit for the rate, per second."""
        return max(self.harmless, _LEAST * self.full)


@dataclass(frozen=True)
class Ceiling:
    """The automatic limit of a rate during and after an overload. `rate` is the limit per second; None means no limit.

    `decreased_at` is the time of the last decrease, in seconds of the monotonic clock.
    """

    rate: float | None = None
    decreased_at: float = float("-inf")


def adjusted(ceiling: Ceiling, found: Pressure, flow: Flow, now: float) -> Ceiling:
    """Return the ceiling for the next second: a lower one if the pressure `found` is HIGH, a higher one if it is LOW.

    The ceiling is not lowered within three seconds after a decrease, or while no work is done. Work that is not faster
    than the lowest limit gets no ceiling: then other clients cause the load, and the ceiling would still apply when
    there is more work. A ceiling that rises far enough above the full rate is removed: its `rate` becomes None. `now`
    is the current time of the monotonic clock, in seconds.
    """
    is_fast = flow.rate > flow.least or ceiling.rate is not None and flow.rate > 0
    if found is Pressure.HIGH and is_fast and now - ceiling.decreased_at >= _EFFECT_AFTER:
        # If a cluster stalls for a moment, the flow is small: base the decrease on at least half of the ceiling.
        rate = (
            flow.rate
            if ceiling.rate is None
            else max(ceiling.rate / 2, min(ceiling.rate, flow.rate))
        )
        return Ceiling(max(flow.least, _DECREASE * rate), now)
    if found is Pressure.LOW and ceiling.rate is not None:
        higher = ceiling.rate + _INCREASE * flow.full
        if higher >= _ENDS_AT * flow.full:
            return Ceiling()
        return replace(ceiling, rate=higher)
    return ceiling
