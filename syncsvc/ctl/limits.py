"""Builds the request of `syncctl limit`, and renders the answer. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import click
from rich.console import RenderableType

from syncsvc.ctl.client import Document
from syncsvc.ctl.text import bytes_from, count, size
from syncsvc.ctl.views import Row, grid

# The option of the command, the field of the API, and how the value is read and shown.
_FIELDS: dict[str, tuple[str, Callable[[str], int], Callable[[float], str]]] = {
    "copy_bytes": ("copyBytesPerSecond", bytes_from, lambda value: f"{size(value)}/s"),
    "copy_documents": ("copyDocumentsPerSecond", int, lambda value: f"{count(value)}/s"),
    "events": ("eventsPerSecond", int, lambda value: f"{count(value)}/s"),
    "threads": ("threads", int, count),
}


def change_of(given: Mapping[str, str | None]) -> dict[str, int | None]:
    """Return the body that sets the given limits; `none` lifts a limit. Raises click.BadParameter."""
    return {
        _FIELDS[name][0]: _value(name, text) for name, text in given.items() if text is not None
    }


def _value(name: str, text: str) -> int | None:
    if text == "none":
        return None
    try:
        return _FIELDS[name][1](text)
    except ValueError as error:
        option = f"--{name.replace('_', '-')}"
        raise click.BadParameter(
            f"{text!r} is neither a number nor none.", param_hint=option
        ) from error


def limits_view(answer: Document) -> RenderableType:
    """Render the limits, those that are in effect now, and what throttles the sync."""
    rows: list[Row] = [(name, _shown(name, value)) for name, value in answer["limits"].items()]
    rows += [
        (f"{name} now", _shown(name, value))
        for name, value in answer.get("effective", {}).items()
        if value != answer["limits"].get(name)
    ]
    if throttled := answer.get("throttledBy"):
        text = f"{throttled['what']}: {throttled['reason']}, since {throttled['since']}"
        rows.append(("throttled by", text))
    return grid(rows)


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "none"
    forms = {field: form for field, _, form in _FIELDS.values()}
    return forms[name](value) if name in forms and isinstance(value, int) else json.dumps(value)
