"""Serves metrics in the text format of Prometheus, from a table of what there is to read. Keeps nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from flask import Blueprint, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

Family = CounterMetricFamily | GaugeMetricFamily
# The values of a family by those of its labels; None is unknown.
Values = Mapping[tuple[str, ...], float | None]

# The library's own constant is of another version of the format from release to release.
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Kind(Enum):
    """A counter only rises, until it begins anew at 0.

    What a restarted process counts again from where the last one saved it falls by a little, so it is a gauge.
    """

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True)
class Metric(Generic[T]):
    """One row of a process's table of metrics; `read` finds its values in what the process knows at one moment."""

    kind: Kind
    name: str
    meaning: str
    labels: tuple[str, ...]
    read: Callable[[T], Values]

    def family(self, known: T) -> Family | None:
        """With the values that are known; None where there is none."""
        values = {each: value for each, value in self.read(known).items() if value is not None}
        make = CounterMetricFamily if self.kind is Kind.COUNTER else GaugeMetricFamily
        family: Family = make(self.name, self.meaning, labels=self.labels)
        for labels, value in values.items():
            family.add_metric(labels, value)
        return family if values else None


def single(read: Callable[[T], float | None]) -> Callable[[T], Values]:
    """The values of a family without labels."""
    return lambda known: {(): read(known)}


def one_hot(every: Iterable[E], current: E) -> Values:
    """1 for the current one of several, 0 for the others."""
    return {(str(each.value),): float(each is current) for each in every}


def families(table: Sequence[Metric[T]], known: T) -> Iterator[Family]:
    """Those of the table of which something is known."""
    for metric in table:
        family = metric.family(known)
        if family is not None:
            yield family


class Snapshot(Collector, Generic[T]):
    """The families of a table, read anew whenever they are asked for."""

    def __init__(self, table: Sequence[Metric[T]], take: Callable[[], T]) -> None:
        self._table = table
        self._take = take

    def collect(self) -> Iterator[Family]:
        yield from families(self._table, self._take())


def endpoint(collector: Collector) -> Blueprint:
    """GET /metrics, with a registry of its own: it shows what the collector does, and nothing else."""
    registry = CollectorRegistry()
    registry.register(collector)
    blueprint = Blueprint("metrics", __name__)

    @blueprint.get("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(registry), content_type=_CONTENT_TYPE)

    return blueprint


def as_rst(table: Iterable[Metric[T]]) -> str:
    """The table as the list that the documentation shows."""
    return "".join(
        f"``{_shown(metric)}`` ({metric.kind.value})\n    {metric.meaning}\n" for metric in table
    )


def _shown(metric: Metric[T]) -> str:
    return f"{metric.name}{{{', '.join(metric.labels)}}}" if metric.labels else metric.name
