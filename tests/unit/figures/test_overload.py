"""Tests when a cluster counts as overloaded, and how the rate follows the load."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

import pytest

from syncsvc.figures.overload import Ceiling, Flow, Pressure, adjusted, pressure, typical
from syncsvc.limits import Auto
from syncsvc.source.cluster_load import Load

AUTO = Auto(True, 100, 50, 20, 10)


@pytest.mark.parametrize(
    "source, destination, found, text",
    [
        (Load(), Load(), Pressure.LOW, ""),
        (Load(0.05), Load(0.01), Pressure.LOW, ""),
        (Load(0.101), Load(0.01), Pressure.HIGH, "the latency of the source is 101 ms"),
        (Load(0.09), Load(0.051), Pressure.HIGH, "the latency of the destination is 51 ms"),
        (Load(0.01), Load(0.046), Pressure.NEAR, ""),
        (Load(queue=21), Load(), Pressure.HIGH, "21 operations wait on the source"),
        (
            Load(),
            Load(0.01, 0, 11),
            Pressure.HIGH,
            "slowest secondary of the destination lags by 11 s",
        ),
        # Of several causes, the text names the worst one.
        (Load(0.2), Load(0.2, 21, 11), Pressure.HIGH, "of the destination is 200 ms"),
    ],
)
def test_a_value_above_its_threshold_is_high(
    source: Load, destination: Load, found: Pressure, text: str
) -> None:
    result, why = pressure({"source": source, "destination": destination}, AUTO)
    assert result is found and text in why


def test_a_threshold_of_none_is_not_checked() -> None:
    unchecked = Auto(True, None, None, None, None)
    assert pressure({"source": Load(9, 999, 999)}, unchecked) == (Pressure.LOW, "")


def test_one_slow_answer_has_no_effect() -> None:
    loads = [Load(0.01, 1, 0), Load(5.0, 900, 60), Load(0.02, 2, 1)]
    assert typical(loads) == Load(0.02, 2, 1)
    found = typical([Load(9.0), *loads[:1], Load(), *loads[2:]])
    assert replace(found, latency=None) == Load(None, 1.5, 0.5)
    assert found.latency == pytest.approx(0.015)
    assert typical([]) == typical([Load()]) == Load()


def follow(capacity: float, wanted: float, seconds: int) -> list[tuple[float, float]]:
    """Simulate a cluster whose latency depends on the rate; return the rate and the latency of each second.

    `wanted` is the rate without a limit. The latency of an idle cluster is 5 ms. It grows like that of a queue while
    the rate approaches `capacity`, and without bound while the rate exceeds `capacity`.
    """
    ceiling, backlog, shown = Ceiling(), 0.0, deque([Load()] * 3, maxlen=3)
    rates, flow, found = deque([0.0], maxlen=3), Flow(100.0), []
    for now in range(seconds):
        rate = min(wanted, math.inf if ceiling.rate is None else ceiling.rate)
        rates.append(rate)
        flow = flow.at(sum(rates) / len(rates))
        backlog = max(0.0, backlog + rate - capacity)
        latency = 0.005 / max(0.02, 1 - min(rate, capacity) / capacity) + backlog / capacity
        shown.append(Load(latency))
        high, _ = pressure({"destination": typical([*shown])}, AUTO)
        ceiling = adjusted(ceiling, high, flow, float(now))
        found.append((rate, latency))
    return found


@pytest.mark.parametrize("capacity", [2e6, 2e7, 2e8])
def test_the_rate_settles_below_the_capacity(capacity: float) -> None:
    settled = follow(capacity, wanted=3 * capacity, seconds=400)[200:]
    below = [latency <= 0.05 for _, latency in settled]
    assert sum(below) / len(below) > 0.9
    used = sum(flow for flow, _ in settled) / len(settled) / capacity
    assert 0.6 < used < 1


def test_the_limit_ends_when_the_load_does() -> None:
    ceiling, flow = Ceiling(), Flow(100.0)
    for now in range(60):
        flow = flow.at(ceiling.rate or 1e6)
        ceiling = adjusted(ceiling, Pressure.HIGH, flow, float(now))
    assert ceiling.rate == pytest.approx(1e4)  # not zero: the sync always continues
    for now in range(60, 300):
        ceiling = adjusted(ceiling, Pressure.LOW, flow, float(now))
    assert ceiling == Ceiling()


def test_the_effect_of_a_decrease_is_awaited() -> None:
    flow = Flow(100.0).at(1000.0)
    once = adjusted(Ceiling(), Pressure.HIGH, flow, 10.0)
    assert once.rate == pytest.approx(700)
    flow = flow.at(700.0)
    assert adjusted(once, Pressure.HIGH, flow, 12.0) == once
    assert adjusted(once, Pressure.HIGH, flow, 13.0).rate == pytest.approx(490)
    assert adjusted(once, Pressure.NEAR, flow, 20.0) == once


@pytest.mark.parametrize("full, slow", [(0.0, 0.0), (0.0, 2.0), (50_000.0, 400.0)])
def test_slow_work_is_not_limited(full: float, slow: float) -> None:
    flow = Flow(100.0).at(full).at(slow)
    assert adjusted(Ceiling(), Pressure.HIGH, flow, 10.0) == Ceiling()


@pytest.mark.parametrize("rate, ceiling", [(0.0, 700.0), (2.0, 245.0)])
def test_a_limit_falls_further_if_the_work_stalls_under_load(rate: float, ceiling: float) -> None:
    flow = Flow(100.0).at(1000.0).at(rate)
    found = adjusted(Ceiling(700.0, 0.0), Pressure.HIGH, flow, 10.0)
    assert found.rate == pytest.approx(ceiling)


def test_work_that_grows_under_load_falls_by_30_percent() -> None:
    ceiling, flow = Ceiling(), Flow(100.0)
    for now, rate in enumerate([2.0, 2.0, 2.0, 5000.0]):
        flow = flow.at(rate)
        ceiling = adjusted(ceiling, Pressure.HIGH, flow, 5.0 * now)
    assert ceiling.rate == pytest.approx(3500)


@pytest.mark.parametrize("full, least", [(2000.0, 100.0), (50_000.0, 500.0)])
def test_a_limit_has_a_minimum(full: float, least: float) -> None:
    ceiling, flow = Ceiling(), Flow(100.0).at(full)
    for now in range(0, 300, 3):
        flow = flow.at(ceiling.rate or full)
        ceiling = adjusted(ceiling, Pressure.HIGH, flow, float(now))
    assert ceiling.rate == pytest.approx(least)
