"""Builds the request of `syncctl limit`, and renders the answer. The functions here have no side effects."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import click
from rich.console import RenderableType

from syncsvc.ctl.client import Document
from syncsvc.ctl.tables import Row, grid
from syncsvc.ctl.text import bytes_from, count, size

# For each option of the command: the field of the API, and the functions that read and show its value.
_FIELDS: dict[str, tuple[str, Callable[[str], int], Callable[[float], str]]] = {
    "copy_bytes": ("copyBytesPerSecond", bytes_from, lambda value: f"{size(value)}/s"),
    "copy_documents": ("copyDocumentsPerSecond", int, lambda value: f"{count(value)}/s"),
    "events": ("eventsPerSecond", int, lambda value: f"{count(value)}/s"),
    "threads": ("threads", int, count),
}

# How the values of a measured load are shown.
_LOADS = {
    "latencyMS": "latency {} ms",
    "queue": "queue {}",
    "replicationLagSeconds": "replication lag {} s",
}


def change_of(given: Mapping[str, str | None]) -> dict[str, int | None]:
    """Return the limits that the options change, by API field. Raises click.BadParameter if a value is invalid.

    `given` maps the name of an option to its value: None leaves a limit unchanged, and the text `none` lifts it.
    """
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
        wanted = "a size, such as 20MB," if _FIELDS[name][1] is bytes_from else "a number"
        raise click.BadParameter(
            f"{text!r} is neither {wanted} nor `none`.", param_hint=option
        ) from error


def limits_view(answer: Document) -> RenderableType:
    """Render the answer to a request that reads or changes the limits."""
    limits = dict(answer["limits"])
    windows, auto = limits.pop("windows", ()), limits.pop("auto", {})
    rows: list[Row] = [(name, _shown(name, value)) for name, value in limits.items()]
    rows += [("window", _window(each)) for each in windows]
    rows.append(("auto", _auto(auto)))
    rows += [
        (f"{name} now", _shown(name, value))
        for name, value in answer.get("effective", {}).items()
        if value != answer["limits"].get(name)
    ]
    if not answer.get("saved", True):
        rows.append(
            (
                "saved",
                "not yet: this daemon keeps the limits in its memory until it can save the limits",
            )
        )
    rows += [
        (f"{side} load", ", ".join(known))
        for side, load in answer.get("measured", {}).items()
        if (
            known := [
                _LOADS[name].format(value) for name, value in load.items() if value is not None
            ]
        )
    ]
    if throttled := answer.get("throttledBy"):
        what, reason = throttled["what"], throttled["reason"].rstrip(".")
        text = reason if reason.startswith(what) else f"{what}: {reason}"
        rows.append(("throttled by", f"{text}, since {throttled['since']}"))
    return grid(rows)


def _window(window: Document) -> str:
    """Return a line such as `22:00 to 06:00 Europe/Berlin: threads 2`."""
    when = f"{window['from']} to {window['to']} {window['timezone']}"
    limits = [f"{name} {_shown(name, value)}" for name, value in window["limits"].items() if value]
    return f"{when}: {', '.join(limits) or 'no limits'}"


def _auto(auto: Document) -> str:
    if not auto.get("enabled"):
        return "off"
    checked = [f"{name} {value:,}" for name, value in auto.items() if name != "enabled" and value]
    return ", ".join(["on", *checked])


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "none"
    forms = {field: form for field, _, form in _FIELDS.values()}
    return forms[name](value) if name in forms and isinstance(value, int) else json.dumps(value)
