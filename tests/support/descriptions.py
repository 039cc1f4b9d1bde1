"""The OpenAPI descriptions of both services, and whether an answer is as described.

`python -m tests.support.descriptions` writes the descriptions to docs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

import syncsvc.openapi
import verifier.openapi

DOCS = Path(__file__).parents[2] / "docs"

DESCRIPTIONS: dict[str, dict[str, Any]] = {
    "syncsvc": syncsvc.openapi.description(),
    "verifier": verifier.openapi.description(),
}


def file_of(service: str) -> Path:
    return DOCS / f"openapi-{service}.json"


def text_of(service: str) -> str:
    return json.dumps(DESCRIPTIONS[service], indent=2) + "\n"


def assert_described(
    service: str, method: str, path: str, status: int, content_type: str, text: str
) -> None:
    """The answer of an operation has a status, a type and a shape that its description has."""
    operation = DESCRIPTIONS[service]["paths"][path][method.lower()]
    assert str(status) in operation["responses"], f"{method} {path} answered {status}: {text}"
    content = operation["responses"][str(status)]["content"]
    kind = content_type.partition(";")[0]
    assert kind in content, f"{method} {path} answered with {content_type}"
    violations = [*_violations(service, method.lower(), path, str(status), kind, text)]
    assert violations == [], f"{method} {path} answered {status}: {text}"


def _violations(
    service: str, method: str, path: str, status: str, kind: str, text: str
) -> Iterator[str]:
    body: Any = text
    if kind == "application/json":
        body = json.loads(text)
    elif kind == "application/x-ndjson":
        body = [json.loads(line) for line in text.splitlines()]
    for each in _validator(service, method, path, status, kind).iter_errors(body):
        yield f"{each.json_path}: {each.message}"


@cache
def _validator(
    service: str, method: str, path: str, status: str, kind: str
) -> Draft202012Validator:
    document = DESCRIPTIONS[service]
    schema = document["paths"][path][method]["responses"][status]["content"][kind]["schema"]
    # Where the references of the schema lead to.
    return Draft202012Validator({**schema, "components": document["components"]})


if __name__ == "__main__":
    for each in DESCRIPTIONS:
        file_of(each).write_text(text_of(each))
