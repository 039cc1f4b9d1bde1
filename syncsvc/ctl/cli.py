"""The entry point of `syncctl`."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

import click
from click.shell_completion import get_completion_class

from syncsvc.ctl.cutover import commit
from syncsvc.ctl.examining import diagnose, examine, report
from syncsvc.ctl.exits import Exit
from syncsvc.ctl.lists import mismatches, namespaces, users
from syncsvc.ctl.of_sync import (
    limit,
    pause,
    preflight,
    repair,
    reset,
    resume,
    reverse,
    start,
    status,
    watch,
)
from syncsvc.ctl.of_verifier import verifier
from syncsvc.ctl.tool import Group, connection_options


@click.group(
    cls=Group,
    params=connection_options(hidden=False),
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)
@click.version_option(package_name="syncsvc", prog_name="syncctl")
def syncctl() -> None:
    """Operate a sync: start, watch, commit.

    syncctl calls the HTTP API of syncsvc, or of syncsvc-verifier, on this machine or on another one.
    """


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    For bash, add to ~/.bashrc: eval "$(syncctl completion bash)"

    For zsh, add to ~/.zshrc: eval "$(syncctl completion zsh)"
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(syncctl, {}, "syncctl", "_SYNCCTL_COMPLETE").source())


# The help lists the commands in this order, which is the order in which an operator uses them.
for command in (
    examine,
    preflight,
    start,
    status,
    watch,
    namespaces,
    limit,
    pause,
    resume,
    mismatches,
    repair,
    users,
    commit,
    reverse,
    reset,
    report,
    diagnose,
    verifier,
    completion,
):
    syncctl.add_command(command)


def main() -> None:
    """Run `syncctl` with the arguments of this process."""
    for stream in (sys.stdout, sys.stderr):
        # Characters that the encoding of the output lacks are escaped.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        syncctl.main(prog_name="syncctl")
    except OSError as error:
        # Python flushes the buffered output again when the process ends, which would fail again and replace the status.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_unwritable(error))


def _unwritable(error: OSError) -> Exit:
    """Report that the output cannot be written. Return the exit status."""
    text = (
        f"The output cannot be written: {error}. If this was a command, the called process may have received it: run "
        "syncctl status or syncctl verifier status."
    )
    print(text, file=sys.stderr)
    return Exit.UNREACHABLE
