"""The Prometheus rules and the Grafana dashboard use metrics and labels that exist, and every alert says what to do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

import syncsvc.reports.metrics
import verifier.metrics
from syncsvc.figures.progress import WarningKind
from syncsvc.state import State
from verifier.compare.check_progress import Outcome, Phase

ROOT = Path(__file__).parents[2]
RULES = ROOT / "docs" / "monitoring" / "alerts.yml"
DASHBOARD = ROOT / "docs" / "monitoring" / "grafana-dashboard.json"
# Labels that Prometheus adds to every sample, including those of `up`, which it creates itself for each target.
OF_TARGETS = {"job", "instance"}
METRICS: dict[str, set[str]] = {
    "up": OF_TARGETS,
    **{
        each.name: OF_TARGETS | {*each.labels}
        for module in (syncsvc.reports.metrics, verifier.metrics)
        for each in [*module.TABLE, *module.WEBHOOK_TABLE]
    },
}
# The values of labels that an expression may compare with.
VALUES = {
    ("mongosync_state", "state"): {each.value for each in State},
    ("mongosync_warning", "warning"): {each.value for each in WarningKind},
    ("verifier_phase", "phase"): {each.value for each in Phase},
    ("verifier_verdict", "verdict"): {each.value for each in Outcome},
    **{
        (f"{prefix}_webhook_notices_total", "outcome"): {"delivered", "dropped"}
        for prefix in ("mongosync", "verifier")
    },
}
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
PANELS = [each for each in json.loads(DASHBOARD.read_text())["panels"] if each["type"] != "row"]
EXPRESSIONS = [
    *(each["expr"] for each in ALERTS),
    *(target["expr"] for panel in PANELS for target in panel["targets"]),
]
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed"
)


def nodes(tree: Any) -> Iterator[Any]:
    """Yield a parsed PromQL expression and all expressions inside it."""
    yield tree
    below = [getattr(tree, name, None) for name in ("lhs", "rhs", "expr", "vector_selector")]
    for each in (*below, *(getattr(tree, "args", None) or ())):
        if each is not None:
            yield from nodes(each)


def used(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yield the metric and the labels of each selector in a PromQL expression.

    Raise ValueError if the syntax is wrong, or if a selector compares a label, except those in OF_TARGETS, with a value
    that VALUES does not list.
    """
    for node in nodes(promql_parser.parse(expression)):
        if isinstance(node, promql_parser.VectorSelector) and node.name is not None:
            for each in node.matchers.matchers:
                known = VALUES.get((node.name, each.name))
                given = {*each.value.split("|")}
                if each.name not in OF_TARGETS and (known is None or not given <= known):
                    raise ValueError(f"{node.name} has no {each.name} {each.value}")
            yield node.name, {each.name for each in node.matchers.matchers}


def grouped(expression: str) -> set[str]:
    """Return the labels by which a PromQL expression aggregates."""
    aggregations = [
        node
        for node in nodes(promql_parser.parse(expression))
        if isinstance(node, promql_parser.AggregateExpr)
    ]
    modifiers = (each.modifier for each in aggregations if each.modifier is not None)
    return {label for each in modifiers for label in each.labels}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_metric_and_label_exists(expression: str) -> None:
    selectors = list(used(expression))
    assert selectors
    for name, labels in selectors:
        assert labels <= METRICS[name]
    assert grouped(expression) <= set.intersection(*(METRICS[name] for name, _ in selectors))


@pytest.mark.parametrize(
    "wrong", ["mongosync_lag", 'mongosync_state{state="DONE"}', "sum by (job (mongosync_state)"]
)
def test_a_wrong_expression_is_found(wrong: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        for name, labels in used(wrong):
            assert labels <= METRICS[name]


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_every_alert_says_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert {*rule} <= {"alert", "expr", "for", "labels", "annotations"}
    summary, description = rule["annotations"]["summary"], rule["annotations"]["description"]
    assert 20 < len(summary) < 120 and 80 < len(description)
    # The result has the labels of the metrics before "unless".
    shown = rule["expr"].partition(" unless ")[0]
    known = set.intersection(*(METRICS[name] for name, _ in used(shown)))
    labels = grouped(rule["expr"]) or known
    assert {*re.findall(r"\$labels\.(\w+)", summary + description)} <= labels


def test_the_names_of_alerts_are_unique() -> None:
    names = [each["alert"] for each in ALERTS]
    assert len(names) == len({*names}) and len(names) > 10


def test_the_dashboard_is_complete() -> None:
    document = json.loads(DASHBOARD.read_text())
    assert (document["uid"], document["title"]) == ("syncsvc", "syncsvc")
    variables = {each["name"] for each in document["templating"]["list"]}
    text = DASHBOARD.read_text()
    assert {*re.findall(r"\$\{?(\w+)", text)} <= variables
    ids = [each["id"] for each in document["panels"]]
    assert len(ids) == len({*ids})
    for panel in PANELS:
        assert panel["title"] and panel["description"] and panel["targets"]
        shown = {each for target in panel["targets"] for each in _legend(target["legendFormat"])}
        names = [name for target in panel["targets"] for name, _ in used(target["expr"])]
        assert shown <= set.union(*(METRICS[name] for name in names))
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
    # More than 35 metrics are in an alert or a panel. No alert and no panel has a metric that does not exist.
    shown = {name for each in EXPRESSIONS for name, _ in used(each)}
    assert shown <= METRICS.keys() and len(shown) > 35


def _legend(text: str) -> set[str]:
    return {*re.findall(r"\{\{(\w+)\}\}", text)}


@needs_promtool
def test_promtool_finds_no_fault_and_every_alert_fires() -> None:
    for command in (
        ["check", "rules", str(RULES)],
        ["test", "rules", str(ROOT / "tests" / "unit" / "alerts-test.yml")],
    ):
        done = subprocess.run(
            ["promtool", *command], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_in_the_test_of_promtool() -> None:
    text = (ROOT / "tests" / "unit" / "alerts-test.yml").read_text()
    assert {*re.findall(r'alertname="(\w+)"', text)} == {each["alert"] for each in ALERTS}
