"""Finds, in the source code of a program, the lines that the program can log."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

# The methods of a logger, and the level in the log.
_LEVELS = {
    "debug": "debug",
    "info": "info",
    "warning": "warn",
    "error": "error",
    "critical": "fatal",
}


class LogLine(NamedTuple):
    """A line that a program can log. In `message`, `...` stands for each variable part.

    `fields` are the names of the additional fields of the line.
    """

    level: str
    message: str
    fields: tuple[str, ...]


def log_lines(modules: Iterable[Path]) -> list[LogLine]:
    """Return the distinct lines that these modules can log, sorted, with the most severe ones first.

    Lines whose message is not written in the call itself are left out.
    """
    parsed = (ast.parse(each.read_text()) for each in modules)
    found = {line for module in parsed for line in _lines(ast.walk(module))}
    severity = [*_LEVELS.values()]
    return sorted(
        (line for line in found if line.message != "..."),
        key=lambda line: (-severity.index(line.level), line.message, line.fields),
    )


def as_rst(modules: Iterable[Path]) -> str:
    """Return a reStructuredText list of the lines that these modules can log, each with its fields in parentheses."""
    return "".join(
        f"- ``{level}``: {message.replace('`', '')}{_listed(fields)}\n"
        for level, message, fields in log_lines(modules)
    )


def _listed(fields: Iterable[str]) -> str:
    names = ", ".join(f"``{name}``" for name in fields)
    return f" ({names})" if names else ""


def _lines(nodes: Iterable[ast.AST]) -> Iterator[LogLine]:
    for node in nodes:
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="_log"), attr=method), args=[text, *_]
            ) if (method in _LEVELS):
                yield LogLine(_LEVELS[method], _message(text), tuple(_fields(node)))


def _message(text: ast.expr) -> str:
    match text:
        case ast.Constant(value=str(value)):
            return value.replace("%s", "...")
        case ast.JoinedStr(values=values):
            return "".join(map(_message, values))
        case ast.IfExp(body=body, orelse=orelse):
            return f"{_message(body)} / {_message(orelse)}"
        case _:
            return "..."


def _fields(call: ast.Call) -> Iterator[str]:
    for keyword in call.keywords:
        match keyword:
            case ast.keyword(arg="extra", value=ast.Dict(keys=keys)):
                yield from (str(each.value) for each in keys if isinstance(each, ast.Constant))
            case ast.keyword(arg="exc_info"):
                yield "trace"
