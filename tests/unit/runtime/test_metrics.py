"""A table of metrics is rendered in the Prometheus text format; the client library's global registry is not used."""

from __future__ import annotations

import math
from enum import Enum

from flask import Flask
from flask.testing import FlaskClient
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from tests.support.metrics import parsed
from verifier.runtime.httpd import install_error_handlers
from verifier.runtime.metrics import Kind, Metric, Snapshot, as_rst, endpoint, one_hot, single


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


TABLE: tuple[Metric[dict[str, float]], ...] = (
    Metric(Kind.GAUGE, "a_seconds", "A time.", (), single(lambda known: known.get("a"))),
    Metric(Kind.COUNTER, "b_total", "A count.", (), single(lambda known: known.get("b"))),
    Metric(
        Kind.GAUGE,
        "c",
        "By two labels.",
        ("place", "kind"),
        lambda known: {('x "y"\\\n', "z"): known.get("c"), ("none", "z"): None},
    ),
)


def api(known: dict[str, float]) -> FlaskClient:
    app = Flask("test")
    install_error_handlers(app)
    app.register_blueprint(endpoint(Snapshot(TABLE, lambda: known)))
    return app.test_client()


def test_known_values_are_shown() -> None:
    answer = api({"a": math.inf, "b": 0, "c": -1.5}).get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert parsed(answer.text) == {
        "a_seconds": {(): math.inf},
        "b_total": {(): 0},
        "c": {("z", 'x "y"\\\n'): -1.5},
    }
    families = {each.name: each for each in text_string_to_metric_families(answer.text)}
    assert {name: each.type for name, each in families.items()} == {
        "a_seconds": "gauge",
        "b": "counter",
        "c": "gauge",
    }
    assert families["b"].documentation == "A count."


def test_unknown_values_are_left_out() -> None:
    assert parsed(api({"b": 7}).get("/metrics").text) == {"b_total": {(): 7}}
    assert api({}).get("/metrics").text == ""


def test_the_newest_is_read_at_each_request() -> None:
    known = {"a": 1.0}
    client = api(known)
    assert parsed(client.get("/metrics").text) == {"a_seconds": {(): 1}}
    known["a"] = 2.0
    assert parsed(client.get("/metrics").text) == {"a_seconds": {(): 2}}


def test_only_reading_is_allowed() -> None:
    answer = api({}).post("/metrics")
    assert (answer.status_code, answer.get_json()["error"]) == (405, "MethodNotAllowed")


def test_nothing_is_registered_for_the_whole_process() -> None:
    api({"a": 1}).get("/metrics")
    api({"a": 2}).get("/metrics")
    assert "a_seconds" not in {each.name for each in REGISTRY.collect()}


def test_one_hot_is_1_for_the_current_member_only() -> None:
    assert one_hot(Colour, Colour.BLUE) == {("red",): 0, ("blue",): 1}


def test_the_documentation_shows_labels_and_kinds() -> None:
    assert as_rst(TABLE[1:]) == (
        "``b_total`` (counter)\n    A count.\n``c{place, kind}`` (gauge)\n    By two labels.\n"
    )
