"""Renders the commands of `syncctl` as reStructuredText for the documentation, from the program's own definitions."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

import click
from tabulate import tabulate

from syncsvc.ctl.cli import syncctl
from syncsvc.ctl.exits import Exit


def commands_as_rst() -> str:
    """Return the documentation of all commands, one section for each, in the order of the help."""
    return "\n".join(_sections(syncctl, "syncctl"))


def options_as_rst() -> str:
    """Return the documentation of the options that syncctl accepts before and after the name of every command."""
    return "\n".join(_options(syncctl))


def exits_as_rst() -> str:
    """Return a table of the exit statuses of syncctl and their meanings."""
    rows = [(each.value, each.meaning) for each in Exit]
    return tabulate(rows, ("status", "meaning"), tablefmt="rst") + "\n"


def leaves(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command in the group and its subgroups with its full name, which begins with `path`."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _sections(group: click.Group, path: str) -> Iterator[str]:
    for name, command in leaves(group, path):
        title = f"``{' '.join([name, *_arguments(command)])}``"
        yield "\n".join([title, "~" * len(title), ""])
        yield cleandoc(command.help or "") + "\n"
        yield from _options(command)


def _arguments(command: click.Command) -> Iterator[str]:
    for each in command.params:
        if isinstance(each, click.Argument):
            yield _values(each)


def _values(parameter: click.Parameter) -> str:
    """Return the placeholder for a parameter's value in the help, the same for all versions of click."""
    if isinstance(parameter.type, click.Choice) and parameter.metavar is None:
        return "|".join(parameter.type.choices)
    assert parameter.metavar, f"{parameter.name} has no metavar"
    return parameter.metavar


def _options(command: click.Command) -> Iterator[str]:
    for each in command.params:
        shared = each.name == "json"
        if isinstance(each, click.Option) and not (each.hidden or each.is_eager or shared):
            yield f"{_names(each)}\n    {_meaning(each)}\n"


def _names(option: click.Option) -> str:
    metavar = "" if option.is_flag else f" {_values(option)}"
    return ", ".join(f"``{name}{metavar}``" for name in option.opts)


def _meaning(option: click.Option) -> str:
    parts = [option.help or ""]
    default: Any = option.default
    if option.show_default and default is not None:
        parts.append(f"Default: {default}.")
    if option.envvar:
        parts.append(f"Environment variable: ``{option.envvar}``.")
    return " ".join(part if part.endswith(".") else f"{part}." for part in parts)
