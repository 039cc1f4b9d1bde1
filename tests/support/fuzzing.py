"""Requests that schemathesis makes from a service's own description, and what their answers must be.

Always the same requests for the same description; no deadline that a machine with much to do could miss.
"""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core import NotSet
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.support.service_process import ServiceProcess
from tests.support.waiting import PATIENCE

_BOUNDED = settings(
    max_examples=12,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@schemathesis.deserializer("application/x-ndjson")
def _lines(context: schemathesis.DeserializationContext, response: schemathesis.Response) -> Any:
    return [json.loads(line) for line in response.text.splitlines()]


def _is_meant(case: schemathesis.Case) -> bool:
    """A request that is to be bad is not so by having no body, where that counts as {}."""
    negative = case.meta is not None and case.meta.generation.mode.is_negative
    return not (negative and case.operation.body and isinstance(case.body, NotSet))


class Fuzzer:
    """Of one running process, after the description that it serves."""

    def __init__(self, process: ServiceProcess) -> None:
        self._base = f"http://127.0.0.1:{process.port}"
        self._schema: BaseSchema = schemathesis.openapi.from_url(process.url("openapi.json"))
        self._session = requests.Session()

    def fuzz(self, *, only_bad: Container[str] = ()) -> int:
        """Ask every operation, each of `only_bad` with bad requests alone; how often it was asked."""
        asked = 0
        for operation in (each.ok() for each in self._schema.get_all_operations()):
            if operation.path.rpartition("/")[2] not in only_bad:
                asked += self._ask(operation, schemathesis.GenerationMode.POSITIVE)
            if operation.body or operation.query:
                asked += self._ask(operation, schemathesis.GenerationMode.NEGATIVE)
        return asked

    def _ask(self, operation: APIOperation, mode: schemathesis.GenerationMode) -> int:
        asked = 0

        @_BOUNDED
        @given(case=operation.as_strategy(generation_mode=mode).filter(_is_meant))
        def answers(case: schemathesis.Case) -> None:
            nonlocal asked
            asked += 1
            case.call_and_validate(
                base_url=self._base,
                session=self._session,
                excluded_checks=[positive_data_acceptance],
                timeout=PATIENCE,
            )

        answers()
        return asked
