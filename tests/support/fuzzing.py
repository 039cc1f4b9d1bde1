"""Generates requests from a service's own OpenAPI description with schemathesis, and checks the answers.

The same description always leads to the same requests. There are no deadlines that a busy machine could miss.
"""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core import NotSet
from schemathesis.core.result import Ok
from schemathesis.generation.case import Case
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from syncsvc.options import CLUSTERS
from tests.support.service_process import ServiceProcess
from tests.support.tokens import bearer
from tests.support.waiting import PATIENCE

_SETTINGS = settings(
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
_GOOD, _BAD = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE


@schemathesis.deserializer("application/x-ndjson")
def _lines(context: schemathesis.DeserializationContext, response: schemathesis.Response) -> Any:
    return [json.loads(line) for line in response.text.splitlines()]


class Fuzzer:
    """Sends requests for every operation that the OpenAPI description of a running process contains.

    `examples` is the maximum number of valid requests for each operation, and of invalid ones.
    """

    def __init__(self, process: ServiceProcess, examples: int = 5) -> None:
        self._base = f"http://127.0.0.1:{process.port}"
        description = schemathesis.openapi.from_dict(process.get("openapi.json").json())
        operations = [
            each.ok() for each in description.get_all_operations() if isinstance(each, Ok)
        ]
        self._good = [case for each in operations for case in _cases(each, _GOOD, examples)]
        self._bad = [
            case
            for each in operations
            if each.body or each.query
            for case in _cases(each, _BAD, examples)
        ]
        assert self._good and self._bad
        self._session = requests.Session()
        self._headers: dict[str, str] = {}

    def fuzz(self, *, only_bad: Container[str] = (), token: str | None = None) -> None:
        """Send valid requests for each operation, and invalid ones for each that has a body or query parameters.

        Check the answers against the description. Operations whose path ends in a name that `only_bad` contains get no
        valid requests. If `token` is not None, all requests carry it.
        """
        self._headers = {} if token is None else bearer(token)
        for case in self._good:
            if case.operation.path.rpartition("/")[2] not in only_bad:
                self._ask(case)
        for case in self._bad:
            self._ask(case)

    def _ask(self, case: Case[Any]) -> None:
        # A good request may be refused: because of the clusters, the state, or conflicting options.
        excluded: list[Any] = [positive_data_acceptance]
        if case.path.endswith("/preflight"):
            # A preflight succeeds, and reports the names and shard keys that a start would refuse.
            excluded.append(negative_data_rejection)
        if case.path == "/readyz":
            # Its status 503 is for supervisors.
            excluded.append(not_a_server_error)
        case.call_and_validate(
            base_url=self._base,
            session=self._session,
            headers=self._headers,
            excluded_checks=excluded,
            timeout=PATIENCE,
        )


def _name_clusters(case: Case[Any], mode: schemathesis.GenerationMode) -> None:
    """Put existing cluster names into a valid start request: other names would be refused too early."""
    if mode is _GOOD and isinstance(case.body, dict) and "source" in case.body:
        case.body.update(zip(("source", "destination"), CLUSTERS, strict=True))


def _cases(
    operation: APIOperation[Any, Any, Any, Any], mode: schemathesis.GenerationMode, examples: int
) -> list[Case[Any]]:
    """Return at most `examples` different requests for an operation, valid or invalid ones depending on `mode`."""
    made: dict[str, Case[Any]] = {}

    @settings(_SETTINGS, max_examples=examples)
    @given(case=operation.as_strategy(generation_mode=mode))
    def make(case: Case[Any]) -> None:
        # A request without a body is not bad if the operation treats that as {}.
        if mode is _GOOD or not (operation.body and isinstance(case.body, NotSet)):
            _name_clusters(case, mode)
            made.setdefault(repr((case.query, case.body)), case)

    make()
    return list(made.values())
