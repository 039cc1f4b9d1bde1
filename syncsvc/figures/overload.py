"""Decides whether the clusters are overloaded, and computes the rate to which an overload slows a sync down. Pure.

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

# The median of this many measurements counts, so that a single slow answer has no effect.
_COUNTED = 3
# From this share of a threshold on, the rate is not raised.
_NEAR = 0.8
# A decrease multiplies the rate by this factor; its effect is awaited for so many seconds before the next one.
_DECREASE = 0.7
_EFFECT_AFTER = 3.0
# An increase adds this share of the unlimited rate per second.
_INCREASE = 0.01
# The limit ends when it has grown to this multiple of the unlimited rate, and is never below this share of it.
_ENDS_AT = 1.5
_LEAST = 0.01


def typical(loads: Sequence[Load]) -> Load:
    """Return the median of each value over the newest measurements."""
    newest = loads[-_COUNTED:]
    values = {
        name: [value for each in newest if (value := getattr(each, name)) is not None]
        for name in ("latency", "queue", "replication_lag")
    }
    return Load(**{name: median(known) if known else None for name, known in values.items()})


class Pressure(Enum):
    """The load compared with its thresholds: `HIGH` above one of them, `NEAR` just below one, `LOW` below all."""

    LOW = 0
    NEAR = 1
    HIGH = 2


def pressure(loads: Mapping[str, Load], auto: Auto) -> tuple[Pressure, str]:
    """Compare the loads of the `source` and the `destination` with the thresholds.

    Return the pressure, and why: the value that exceeds its threshold most. Unknown values have no effect.
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
                "the secondaries of the {} lag by {:.0f} s, and the threshold is {} s",
            ),
        )
        for value, threshold, text in compared:
            if value is not None and threshold is not None:
                yield value / threshold, text.format(side, value, threshold)


@dataclass(frozen=True)
class Ceiling:
    """The highest rate that an overloaded cluster allows, per second; None if it allows any rate.

    `unlimited` is the rate before the first decrease, and `decreased_at` the time of the last decrease.
    """

    rate: float | None = None
    unlimited: float = 0.0
    decreased_at: float = float("-inf")


def adjusted(ceiling: Ceiling, found: Pressure, flow: float, now: float) -> Ceiling:
    """Return the next ceiling, one second later. `flow` is the present rate of the work, `now` a monotonic time."""
    if found is Pressure.HIGH and now - ceiling.decreased_at >= _EFFECT_AFTER and flow > 0:
        unlimited = max(ceiling.unlimited, flow)
        # A cluster that stands still for a moment makes the flow small; the rate is not halved more than once for it.
        rate = flow if ceiling.rate is None else max(ceiling.rate / 2, min(ceiling.rate, flow))
        return Ceiling(max(unlimited * _LEAST, 1.0, rate * _DECREASE), unlimited, now)
    if found is Pressure.LOW and ceiling.rate is not None:
        higher = ceiling.rate + _INCREASE * ceiling.unlimited
        if higher >= _ENDS_AT * ceiling.unlimited:
            return Ceiling()
        return replace(ceiling, rate=higher)
    return ceiling
