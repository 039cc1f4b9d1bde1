"""The descriptions of both APIs are valid and complete: every endpoint, every error, every field of an answer.

The check that other tests use for answers finds each answer that is not as described.
"""

from __future__ import annotations

import json

import pytest
import schemathesis
from flask import Flask

import syncsvc.app
import syncsvc.errors
import syncsvc.openapi
import verifier.app
import verifier.errors
import verifier.openapi
from tests.support.descriptions import DESCRIPTIONS, assert_described, file_of, text_of
from tests.unit.syncsvc.test_api import idle_service
from tests.unit.verifier.recorder import Recorder
from verifier.runtime.errors import ErrorKind
from verifier.runtime.openapi import Operation

BOTH = pytest.mark.parametrize("service", DESCRIPTIONS)

OPERATIONS: dict[str, tuple[Operation, ...]] = {
    "syncsvc": syncsvc.openapi.OPERATIONS,
    "verifier": verifier.openapi.OPERATIONS,
}
KINDS: dict[str, tuple[ErrorKind, ...]] = {
    "syncsvc": syncsvc.errors.ALL,
    "verifier": verifier.errors.ALL,
}
# Errors of requests that match no operation.
OF_NO_OPERATION = {"NotFound", "MethodNotAllowed"}
# Errors that end a sync, a check or the process, and are never an answer.
NOT_ANSWERED = {
    "syncsvc": {
        *("AddressNotAvailable", "InvalidURI", "WrongClusters"),
        *("MissingPackage", "InvalidConnectionFile"),
        *("InvalidTokenFile", "InvalidCertificate", "InvalidWebhookSecret"),
        *("UnsupportedChange", "ShardKeyChanged", "RenamedOutOfFilter", "RenamedAcrossDatabases"),
        *("EventNotApplicable", "EventSpoolFull", "EventSpoolDamaged"),
        *("DocumentNotCopied", "DuplicateIds", "DefinitionNotApplicable"),
        *("VerificationFailed", "VerificationIncomplete"),
        "EventTooLarge",
    },
    "verifier": {
        *("AddressNotAvailable", "InvalidURI", "MissingPackage", "InvalidConnectionFile"),
        *("InvalidTokenFile", "InvalidCertificate", "InvalidWebhookSecret"),
        *("DefinitionChanged", "NothingToCompare", "EventTooLarge", "DocumentFilterFailed"),
        *("TimeSeriesNotComparable", "TextNotComparable"),
    },
}


def app_of(service: str) -> Flask:
    if service == "verifier":
        return verifier.app.create_app(Recorder())
    return syncsvc.app.create_app(idle_service())


@BOTH
def test_the_file_is_up_to_date(service: str) -> None:
    assert file_of(service).read_text() == text_of(service), "outdated: run make reference"


@BOTH
def test_the_description_is_valid_openapi(service: str) -> None:
    schemathesis.openapi.from_dict(DESCRIPTIONS[service]).validate()


@BOTH
def test_every_endpoint_is_described(service: str) -> None:
    served = {
        (rule.rule, method.lower())
        for rule in app_of(service).url_map.iter_rules()
        # The web page and its files are not described, because they are for people.
        if not rule.endpoint.startswith("page.")
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    paths = DESCRIPTIONS[service]["paths"]
    assert {(path, method) for path in paths for method in paths[path]} == served


@BOTH
def test_the_description_is_served(service: str) -> None:
    answer = app_of(service).test_client().get("/api/v1/openapi.json")
    assert answer.get_json() == DESCRIPTIONS[service]


@BOTH
def test_every_error_is_an_answer_or_ends_something(service: str) -> None:
    answered = {kind.name for each in OPERATIONS[service] for kind in each.all_errors}
    everything = {kind.name for kind in KINDS[service]}
    assert answered & NOT_ANSWERED[service] == set()
    assert answered | NOT_ANSWERED[service] | OF_NO_OPERATION == everything


@BOTH
def test_the_statuses_of_errors_are_those_of_the_table(service: str) -> None:
    statuses = {kind.name: str(kind.status) for kind in KINDS[service]}
    for each in OPERATIONS[service]:
        responses = DESCRIPTIONS[service]["paths"][each.path][each.method]["responses"]
        for kind in each.errors:
            status = statuses[kind.name]
            schema = responses[status]["content"]["application/json"]["schema"]
            assert kind.name in schema["allOf"][1]["properties"]["error"]["enum"]


PROGRESS = {"success": True, "progress": {"state": "IDLE"}}
REFUSED = {"success": False, "error": "InvalidState", "errorDescription": "No."}
NOT_AS_DESCRIBED: list[tuple[str, str, int, str, object]] = [
    ("get", "progress", 200, "application/json", PROGRESS),
    ("get", "progress", 409, "application/json", REFUSED),
    ("post", "commit", 200, "application/json", {"success": False}),
    ("post", "commit", 200, "text/html", {"success": True}),
    ("post", "commit", 200, "application/json", {"success": True, "more": 1}),
    ("post", "commit", 201, "application/json", {"success": True}),
    ("post", "commit", 409, "application/json", {**REFUSED, "error": "DestinationNotEmpty"}),
    ("post", "commit", 400, "application/json", REFUSED),
    ("post", "commit", 409, "application/json", {**REFUSED, "errorDescription": ""}),
]


@pytest.mark.parametrize("method, path, status, kind, body", NOT_AS_DESCRIBED)
def test_an_undescribed_answer_is_rejected(
    method: str, path: str, status: int, kind: str, body: object
) -> None:
    with pytest.raises(AssertionError):
        assert_described("syncsvc", method, f"/api/v1/{path}", status, kind, json.dumps(body))


def test_a_refusal_is_as_described() -> None:
    kind = "application/json; charset=utf-8"
    assert_described("syncsvc", "POST", "/api/v1/commit", 409, kind, json.dumps(REFUSED))


@BOTH
def test_every_field_and_parameter_has_a_description(service: str) -> None:
    document = DESCRIPTIONS[service]
    described = {
        f"{name}.{field}": schema
        for name, component in document["components"]["schemas"].items()
        for field, schema in component.get("properties", {}).items()
    }
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for each in operation.get("parameters", ()):
                described[f"{method} {path}: {each['name']}"] = each
    assert [name for name, schema in described.items() if not schema.get("description")] == []
