"""Options that several commands of `syncctl` share.

Each option with a value sets its metavar, because the default of click differs between versions.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

FILE = click.Path(path_type=Path)


def file(text: str) -> Decorator:
    """Return a decorator that adds the option -f, a file with the body of a request. `text` is its help."""
    return click.option("-f", "--file", "file", type=FILE, metavar="FILE", help=text)


def output(text: str) -> Decorator:
    """Return a decorator that adds the option -o, a file to write. `text` is its help."""
    return click.option("-o", "--output", type=FILE, metavar="FILE", help=text)


class _Seconds(click.FloatRange):
    """The type of an option that takes a number of seconds. Refuses NaN, which would pass the range check."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return number


def seconds(name: str, text: str) -> Decorator:
    return click.option(name, type=_Seconds(min=0), metavar="SECONDS", help=text)


def number(name: str, default: int, text: str) -> Decorator:
    """Return a decorator that adds an option with a positive whole number. `text` is its help."""
    kind = click.IntRange(min=1)
    return click.option(
        name, type=kind, metavar="NUMBER", default=default, show_default=True, help=text
    )


def text(name: str, metavar: str, meaning: str) -> Decorator:
    return click.option(name, metavar=metavar, help=meaning)


def flag(name: str, meaning: str) -> Decorator:
    return click.option(name, is_flag=True, help=meaning)


START = file(
    "YAML or JSON file with the start options. Default: a sync from cluster0 to cluster1, with default options."
)
TIMEOUT = seconds("--timeout", "Stop waiting after this many seconds, with exit status 4.")
DRY_RUN = flag(
    "--dry-run",
    "Change nothing: only show what the command would do, or whether it is possible now.",
)
