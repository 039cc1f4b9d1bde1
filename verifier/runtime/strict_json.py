"""Parses JSON strictly: refuses repeated fields, NaN and Infinity, which Python's parser accepts silently."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn


def _unchanged(value: dict[str, Any]) -> dict[str, Any]:
    return value


def read(text: str, convert: Callable[[dict[str, Any]], Any] = _unchanged) -> Any:
    """Parse JSON, and replace each object by `convert(object)`; inner objects are converted first.

    Raise ValueError if the text is invalid, or contains NaN, Infinity or an object with a repeated field; raise
    RecursionError if it is nested too deeply. Errors of `convert` are raised unchanged.
    """
    return json.loads(
        text, object_pairs_hook=lambda pairs: convert(_object(pairs)), parse_constant=_refuse
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"an object has the field {json.dumps(name)} twice")
        found[name] = value
    return found


def _refuse(name: str) -> NoReturn:
    raise ValueError(f'{name} is not JSON; in a filter, write {{"$numberDouble": "{name}"}}')
