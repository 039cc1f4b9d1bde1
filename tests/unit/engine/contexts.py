"""Builds contexts of a run that have only the fields that a unit test needs."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from syncsvc.engine.run.context import RunContext


class _Missing:
    """Stands for a field of the context that the test does not provide. Reading an attribute of it fails the test."""

    def __init__(self, field: str) -> None:
        self._field = field

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(
            f"the code reads {self._field}.{name}, but the test gives no {self._field}"
        )


def context_with(**given: Any) -> RunContext:
    """Return a RunContext with the fields `given`.

    Reading an attribute (or calling a method) of another field raises AssertionError, which names the field. Raises
    TypeError for a name in `given` that is not a field of RunContext.
    """
    missing: dict[str, Any] = {each.name: _Missing(each.name) for each in fields(RunContext)}
    return RunContext(**{**missing, **given})
