"""Serves metrics in the Prometheus text format, from a table of metrics. Stores nothing itself."""

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
# The values of a family by its label values; None means unknown.
Values = Mapping[tuple[str, ...], float | None]

# The library's own constant names a different version of the format in different releases.
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Kind(Enum):
    """The type of a metric. The value of a counter only increases, except when it restarts at 0.

    A count that a restarted process continues from a saved value can decrease a little, so it must be a gauge.
    """

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True)
class Metric(Generic[T]):
    """One row of a process's table of metrics. `meaning` is its help text, and `labels` are the names of its labels.

    `read` returns the metric's values from a snapshot, which describes the process at the time of one scrape.
    """

    kind: Kind
    name: str
    meaning: str
    labels: tuple[str, ...]
    read: Callable[[T], Values]

    def family(self, known: T) -> Family | None:
        """Return the Prometheus metric family with the values in the snapshot `known`; None if no value is known."""
        values = {each: value for each, value in self.read(known).items() if value is not None}
        make = CounterMetricFamily if self.kind is Kind.COUNTER else GaugeMetricFamily
        family: Family = make(self.name, self.meaning, labels=self.labels)
        for labels, value in values.items():
            family.add_metric(labels, value)
        return family if values else None


def single(read: Callable[[T], float | None]) -> Callable[[T], Values]:
    """Return a function for `Metric.read` of a metric without labels, whose only value is the result of `read`."""
    return lambda known: {(): read(known)}


def one_hot(every: Iterable[E], current: E) -> Values:
    """Return the values of a metric that shows which member of an enum is current.

    The label is the value of the member. The metric is 1 for the member `current`, and 0 for all others in `every`.
    """
    return {(str(each.value),): float(each is current) for each in every}


def families(table: Sequence[Metric[T]], known: T) -> Iterator[Family]:
    """Yield the metric families of the table that have a known value in the snapshot `known`."""
    for metric in table:
        family = metric.family(known)
        if family is not None:
            yield family


class Snapshot(Collector, Generic[T]):
    """A Prometheus collector. At each scrape, it takes one snapshot of the process with `take()`.

    It then yields every metric in `table` that has a known value in that snapshot.
    """

    def __init__(self, table: Sequence[Metric[T]], take: Callable[[], T]) -> None:
        self._table = table
        self._take = take

    def collect(self) -> Iterator[Family]:
        yield from families(self._table, self._take())


def endpoint(*collectors: Collector) -> Blueprint:
    """Return the blueprint with the endpoint GET /metrics, which shows the metrics of the given collectors only."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    blueprint = Blueprint("metrics", __name__)

    @blueprint.get("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(registry), content_type=_CONTENT_TYPE)

    return blueprint


def as_rst(table: Iterable[Metric[T]]) -> str:
    """Return the table of metrics as a reStructuredText list for the documentation."""
    return "".join(
        f"``{_shown(metric)}`` ({metric.kind.value})\n    {metric.meaning}\n" for metric in table
    )


def _shown(metric: Metric[T]) -> str:
    return f"{metric.name}{{{', '.join(metric.labels)}}}" if metric.labels else metric.name
