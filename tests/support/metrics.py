"""Reads the Prometheus metrics of a process."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.support.service_process import ServiceProcess

Shown = dict[str, dict[tuple[str, ...], float]]


def scrape(process: ServiceProcess) -> Shown:
    answer = process.get("/metrics")
    assert answer.status_code == 200, answer.text
    return parsed(answer.text)


def parsed(text: str) -> Shown:
    return values(text_string_to_metric_families(text))


def values(families: Iterable[Metric]) -> Shown:
    """Return the value of each sample, by the name of the sample and then by the values of its labels."""
    shown: Shown = {}
    for family in families:
        for sample in family.samples:
            of_name = shown.setdefault(sample.name, {})
            assert tuple(sample.labels.values()) not in of_name
            of_name[tuple(sample.labels.values())] = sample.value
    return shown
