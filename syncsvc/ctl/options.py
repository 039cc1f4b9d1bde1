"""Options that several commands have. Each sets its metavar, because the default of click differs between versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

FILE = click.Path(path_type=Path)


def file(text: str) -> Decorator:
    """Return the option -f, a file with the body of a request."""
    return click.option("-f", "--file", "file", type=FILE, metavar="FILE", help=text)


def output(text: str) -> Decorator:
    """Return the option -o, a file to write."""
    return click.option("-o", "--output", type=FILE, metavar="FILE", help=text)


def seconds(name: str, text: str) -> Decorator:
    return click.option(name, type=click.FloatRange(min=0), metavar="SECONDS", help=text)


def number(name: str, default: int, text: str) -> Decorator:
    """Return an option that takes a positive number."""
    kind = click.IntRange(min=1)
    return click.option(
        name, type=kind, metavar="NUMBER", default=default, show_default=True, help=text
    )


def text(name: str, metavar: str, meaning: str) -> Decorator:
    return click.option(name, metavar=metavar, help=meaning)


def flag(name: str, meaning: str) -> Decorator:
    return click.option(name, is_flag=True, help=meaning)


JOB = file(
    "YAML or JSON file with the options of the start. Default: cluster0 to cluster1, with default options."
)
TIMEOUT = seconds("--timeout", "Give up after this time, with status 4.")
DRY_RUN = flag("--dry-run", "Only say what would happen. Changes nothing.")
