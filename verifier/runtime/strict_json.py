"""Parses JSON strictly: refuses repeated fields, NaN, Infinity, and numbers too large for a double."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any, NoReturn


def _unchanged(value: dict[str, Any]) -> dict[str, Any]:
    return value


@dataclass(frozen=True)
class _TooLarge:
    """Stands for a number that is too large, until the object that contains it is complete and its field is known."""


def read(text: str, convert: Callable[[dict[str, Any]], Any] = _unchanged) -> Any:
    """Parse JSON, and replace each object by `convert(object)`; inner objects are converted first.

    Raise ValueError if the text is invalid, or contains NaN, Infinity, or an object with a repeated field or with a
    number beyond the range of a double; raise RecursionError if it is nested too deeply. Errors of `convert` are raised
    unchanged.
    """
    return json.loads(
        text,
        object_pairs_hook=lambda pairs: convert(_object(pairs)),
        parse_constant=_refuse,
        parse_float=_number(float),
        parse_int=_number(int),
    )


def _number(convert: Callable[[str], float]) -> Callable[[str], object]:
    def number(text: str) -> object:
        # Python refuses to convert an integer of many thousand digits, which is also beyond a double.
        return convert(text) if isfinite(float(text)) else _TooLarge()

    return number


def _is_too_large(value: object) -> bool:
    """Return whether a field's value is a number that is too large, or a list that contains one."""
    return isinstance(value, _TooLarge) or (
        isinstance(value, list) and any(map(_is_too_large, value))
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"an object has the field {json.dumps(name)} twice")
        if _is_too_large(value):
            raise ValueError(f"the field {json.dumps(name)} has a number that is too large")
        found[name] = value
    return found


def _refuse(name: str) -> NoReturn:
    raise ValueError(f'{name} is not JSON; in a filter, write {{"$numberDouble": "{name}"}}')
