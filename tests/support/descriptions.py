"""The OpenAPI descriptions of both services, and checks of answers against them."""

from __future__ import annotations

import json
from functools import cache, lru_cache
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
    """Fail unless the OpenAPI description of the service allows this answer.

    `status`, `content_type` and `text` are the answer to a request with this method and path.
    """
    operation = DESCRIPTIONS[service]["paths"][path][method.lower()]
    assert str(status) in operation["responses"], f"{method} {path} answered {status}: {text}"
    content = operation["responses"][str(status)]["content"]
    kind = content_type.partition(";")[0]
    assert kind in content, f"{method} {path} answered with {content_type}"
    violations = _violations(service, method.lower(), path, str(status), kind, text)
    assert not violations, f"{method} {path} answered {status}: {text}: {violations}"


# Cached, because most answers come from polling and repeat many times.
@lru_cache(maxsize=256)
def _violations(
    service: str, method: str, path: str, status: str, kind: str, text: str
) -> tuple[str, ...]:
    body: Any = text
    if kind == "application/json":
        body = json.loads(text)
    elif kind == "application/x-ndjson":
        body = [json.loads(line) for line in text.splitlines()]
    errors = _validator(service, method, path, status, kind).iter_errors(body)
    return tuple(f"{each.json_path}: {each.message}" for each in errors)


@cache
def _validator(
    service: str, method: str, path: str, status: str, kind: str
) -> Draft202012Validator:
    document = DESCRIPTIONS[service]
    schema = document["paths"][path][method]["responses"][status]["content"][kind]["schema"]
    # The references in the schema point to the components.
    return Draft202012Validator({**schema, "components": document["components"]})
