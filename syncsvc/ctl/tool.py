"""The common part of all `syncctl` commands: connection options, output, confirmation and exit status."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any, NoReturn

import click
from rich.console import Console, RenderableType
from rich.text import Text

from syncsvc.ctl.client import Answer, Client, ClientError, checked_url, unreadable
from syncsvc.ctl.exits import Exit
from syncsvc.ctl.facts import Fact
from syncsvc.ctl.tables import facts_view
from syncsvc.ctl.text import printable, printable_json, printable_lines

SYNC_URL = "http://localhost:27182"
VERIFIER_URL = "http://localhost:27020"
# The width of output that does not go to a terminal, in columns: tables become as wide as their contents, and texts are
# not wrapped.
_UNLIMITED = 10_000
_BAR_WIDTH = 30


@dataclass
class Tool:
    """The settings of one call of `syncctl`, and methods that print its output."""

    url: str | None = None
    verifier_url: str | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    json: bool = False
    # The connection options on the command line of this call, which the commands suggested as next steps repeat.
    given: list[str] = field(default_factory=list)

    @cached_property
    def api(self) -> Client:
        """Return the client that sends requests to the sync service."""
        return Client(self.url or SYNC_URL, self.token_file, self.ca_file)

    @cached_property
    def verifier(self) -> Client:
        """Return the client that sends requests to the verifier."""
        url = self.verifier_url or VERIFIER_URL
        return Client(url, self.token_file, self.ca_file, "syncsvc-verifier", "--verifier-url")

    @cached_property
    def console(self) -> Console:
        return _console(sys.stdout)

    @cached_property
    def errors(self) -> Console:
        return _console(sys.stderr)

    @property
    def name(self) -> str:
        """Return `syncctl` with the connection options on the command line of this call, to suggest a next command."""
        return " ".join(["syncctl", *self.given])

    def show(self, answer: Answer, *parts: RenderableType | None) -> None:
        """With --json, print the answer; otherwise print `parts`, which present the answer to people."""
        if self.json:
            self.write(answer.text)
        else:
            self.say(*parts)

    def write(self, text: str) -> None:
        """Print the JSON `text` unchanged, except that terminal control characters are escaped."""
        click.echo(printable_json(text.rstrip("\n")))

    def say(self, *parts: RenderableType | None) -> None:
        """Print the given texts and tables, each on separate lines; skip None and empty texts.

        If the output is not a terminal, the trailing spaces of tables are removed.
        """
        shown = [Text(printable(each)) if isinstance(each, str) else each for each in parts if each]
        if self.console.is_terminal:
            self.console.print(*shown, sep="\n")
            return
        with self.console.capture() as captured:
            self.console.print(*shown, sep="\n")
        lines = captured.get().splitlines()
        click.echo("\n".join(line.rstrip() for line in lines))

    def facts(self, facts: list[Fact]) -> RenderableType:
        """Render the facts as rows, with progress bars if the output is a terminal."""
        bar_width = min(_BAR_WIDTH, self.console.width // 4) if self.console.is_terminal else 0
        return facts_view(facts, bar_width)

    def next(self, step: str) -> Text:
        """Return the output line `Next: ...`, which tells the operator the next step."""
        return Text.assemble(("Next: ", "bold cyan"), printable(step))

    def fail(self, error: ClientError) -> NoReturn:
        """Print `error`, and end the program with the exit status of `error`."""
        if self.json:
            self.write(error.answer)
        else:
            name, description = printable(error.error), printable_lines(error.description)
            self.errors.print(Text.assemble((name, "bold red"), ": ", description))
        self.end(error.status)

    def unexpected(self, error: Exception) -> ClientError | None:
        """Return a ClientError which says that the answer of a daemon cannot be read, because reading raised `error`.

        Return None if no daemon was called: then `error` is a bug of `syncctl`.
        """
        called = [name for name in ("api", "verifier") if name in vars(self)]
        if not called:
            return None
        return unreadable(getattr(self, called[-1]).url, error)

    def end(self, status: Exit) -> NoReturn:
        click.get_current_context().exit(status)


def _console(file: Any) -> Console:
    width = None if file.isatty() else _UNLIMITED
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


pass_tool = click.make_pass_decorator(Tool, ensure=True)


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Store the value of an option in the Tool; keep connection options for the commands suggested as next steps.

    Only those on the command line are kept: variables of the environment also apply to the next commands. An option
    after the command overrides the same option before it.
    """
    tool = context.ensure_object(Tool)
    if value is None or value is False:
        return
    name = str(option.name)
    setattr(tool, name, _url(value, option) if name.endswith("url") else value)
    source = context.get_parameter_source(name)
    if source is click.core.ParameterSource.COMMANDLINE and name != "json":
        tool.given += [option.opts[0], quote(str(value))]


def _url(value: str, option: click.Parameter) -> str:
    try:
        return checked_url(value)
    except ValueError as error:
        raise click.BadParameter(f"{value}: {error}", param=option) from error


_URL = click.STRING
_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
_SHARED: tuple[tuple[str, Any, str, str], ...] = (
    ("--url", _URL, "SYNCCTL_URL", f"Address of the sync service. Default: {SYNC_URL}"),
    (
        "--verifier-url",
        _URL,
        "SYNCCTL_VERIFIER_URL",
        f"Address of the verifier. Default: {VERIFIER_URL}",
    ),
    (
        "--token-file",
        _FILE,
        "SYNCCTL_TOKEN_FILE",
        "File with the token of a daemon that requires one.",
    ),
    (
        "--ca-file",
        _FILE,
        "SYNCCTL_CA_FILE",
        "File with the certificates of the authorities (CA) that signed the daemon's certificate. Default: the "
        "authorities that the system trusts (SSL_CERT_FILE names another file); if there are none, those of the Python "
        "package certifi.",
    ),
)


def connection_options(hidden: bool) -> list[click.Parameter]:
    """Return the connection options. If `hidden`, the help omits them, and no environment variable sets them."""
    return [
        click.Option(
            [name],
            type=kind,
            metavar="URL" if kind is _URL else "FILE",
            help=text,
            hidden=hidden,
            envvar=None if hidden else variable,
            show_envvar=True,
            expose_value=False,
            callback=_remember,
        )
        for name, kind, variable, text in _SHARED
    ]


def _json_option() -> click.Parameter:
    return click.Option(
        ["--json"],
        is_flag=True,
        help="Print the answer of the API as JSON.",
        expose_value=False,
        callback=_remember,
    )


# The exceptions that reading an answer raises if a field is missing, or has an invalid value or type.
_ODD_ANSWER = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


class Command(click.Command):
    """A command that calls a daemon or a verifier.

    It accepts the connection options after its name, too, and errors become exit statuses.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params += [_json_option(), *connection_options(hidden=True)]

    def invoke(self, context: click.Context) -> Any:
        tool = context.ensure_object(Tool)
        try:
            return super().invoke(context)
        except ClientError as error:
            tool.fail(error)
        except _ODD_ANSWER as error:
            if (found := tool.unexpected(error)) is None:
                raise
            tool.fail(found)
        except KeyboardInterrupt:
            tool.errors.print("Interrupted. What the daemon or the verifier has begun goes on.")
            context.exit(Exit.INTERRUPTED)


class Group(click.Group):
    """A group that lists its commands in the order in which they were added."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def require_terminal(option: str) -> None:
    """Raise ClientError if there is no terminal to type a confirmation at. `option` replaces the confirmation."""
    if not sys.stdin.isatty():
        raise ClientError(
            Exit.USAGE,
            "NotConfirmed",
            f"the command needs a confirmation, but there is no terminal to type it at. In a script, add {option}.",
        )


def confirm(tool: Tool, expected: str, option: str, *question: str) -> None:
    """Ask the operator to type the name `expected`, and return if the operator has done so.

    Raises ClientError if the operator types another text, or if there is no terminal. Raises ValueError if `expected`
    is empty or cannot be typed. `option` is the option that skips this question. `question` holds the lines above the
    prompt.
    """
    require_terminal(option)
    if not expected.strip() or printable(expected) != expected:
        # Enter alone would confirm an empty name, and a name with control characters cannot be typed.
        raise ValueError(
            f"the name of the destination, {expected!r}, cannot be typed as a confirmation"
        )
    for line in question:
        tool.errors.print(printable(line))
    try:
        typed = click.prompt(
            f"Type {expected} to confirm", default="", show_default=False, err=True
        )
    except click.Abort:
        typed = ""
    if typed.strip() != expected:
        raise ClientError(
            Exit.FAILED,
            "NotConfirmed",
            "the command was not confirmed, so nothing was sent, and nothing changed.",
        )


def listed(lines: Iterable[str], mark: str = "- ") -> list[str]:
    return [f"{mark}{each}" for each in lines]
