"""Dataclass fields for sizes, intervals and other numbers that can be tuned, and their table for the documentation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields
from typing import Any

MB = 1 << 20


def size(default: int, meaning: str) -> Any:
    """Return a dataclass field for a size in bytes. `meaning` describes it in the documentation."""
    return field(default=default, metadata={"unit": "bytes", "meaning": meaning})


def seconds(default: float, meaning: str) -> Any:
    """Return a dataclass field for an interval or a timeout in seconds. `meaning` describes it in the documentation."""
    return field(default=default, metadata={"unit": "s", "meaning": meaning})


def number(default: int, unit: str, meaning: str) -> Any:
    """Return a dataclass field for a number of `unit`, such as "events".

    `meaning` describes it in the documentation.
    """
    return field(default=default, metadata={"unit": unit, "meaning": meaning})


def as_rst(tuning: Any) -> str:
    """Return the fields of a tuning object and their values as a reStructuredText table for the documentation."""
    head = ".. list-table::\n   :header-rows: 1\n\n   * - Name\n     - Value\n     - Meaning\n"
    return head + "".join(_rows(tuning))


def _rows(tuning: Any) -> Iterator[str]:
    for each in fields(tuning):
        if "unit" in each.metadata:
            value = _shown(getattr(tuning, each.name), each.metadata["unit"])
            yield f"   * - ``{each.name}``\n     - {value}\n     - {each.metadata['meaning']}\n"


def _shown(value: float, unit: str) -> str:
    if unit == "bytes" and value >= MB and not value % MB:
        return f"{value // MB} MiB"
    return f"{value:g} {unit}"
