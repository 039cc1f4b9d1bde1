"""Follows a sync or a check: a live display at a terminal; a line for each step elsewhere, and with `--json`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event
from time import monotonic
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from syncsvc.ctl.client import Answer, Client, ClientError, Document
from syncsvc.ctl.exits import Exit
from syncsvc.ctl.facts import Fact, one_line
from syncsvc.ctl.rates import Rates
from syncsvc.ctl.tables import plain
from syncsvc.ctl.text import duration
from syncsvc.ctl.tool import Tool

# Seconds between an answer and the next request.
INTERVAL = 1.0
_FOOTER = "Ctrl-C ends only this command."


@dataclass(frozen=True)
class Subject:
    """The process to watch (a daemon or a verifier), and functions that read its answers.

    `read` returns the progress in an answer, and `facts` the facts to show. A new line is printed when the value of
    `step` changes. `counters` returns the counters whose rates are shown.
    """

    api: Client
    read: Callable[[Answer], Document]
    facts: Callable[[Document, Rates], list[Fact]]
    step: Callable[[Document], Any]
    counters: Callable[[Document], Mapping[str, int]]


@dataclass
class Watch:
    """Polls a process (a daemon or a verifier), and shows its answers. Continues while the process is being restarted.

    All waits end `timeout` seconds after this object was created; None means no limit. `answered` is True if the
    process has already answered this command: then, if the process does not answer, the request is retried.
    """

    tool: Tool
    subject: Subject
    timeout: float | None = None
    answered: bool = False
    _began: float = field(default_factory=monotonic)
    _rates: Rates = field(default_factory=Rates)
    _silent_since: float | None = None
    _step: Any = None
    _live: Live | None = None

    def until(self, holds: Callable[[Document], bool]) -> Document:
        """Poll the process until `holds(progress)` is true, and return that progress.

        Raises ClientError if the process does not answer and has never answered this command, if it answers with an
        error, and with status NOT_YET after `timeout` seconds.
        """
        with self._display():
            progress = self._look()
            while progress is None or not holds(progress):
                self.pause()
                progress = self._look()
            if self._live is not None:
                self._live.update(self._view(progress), refresh=True)
        return progress

    def pause(self) -> None:
        """Wait until the next request. Raises ClientError with status NOT_YET once the timeout is over."""
        left = INTERVAL
        if self.timeout is not None:
            left = min(left, self._began + self.timeout - monotonic())
        if left <= 0:
            raise ClientError(
                Exit.NOT_YET,
                "TimedOut",
                f"the awaited condition did not become true within {duration(self.timeout)}. Only this command "
                "has ended: the watched process continues.",
            )
        Event().wait(left)

    @contextmanager
    def _display(self) -> Iterator[None]:
        if self.tool.json or not self.tool.console.is_terminal:
            yield
            return
        with Live(console=self.tool.console, auto_refresh=False) as self._live:
            yield
        self._live = None

    def _look(self) -> Document | None:
        """Request the progress, show it and return it; None if a process that answered before does not answer now."""
        try:
            answer = self.subject.api.get("progress")
            progress = self.subject.read(answer)
        except ClientError as error:
            if not self.answered or error.status is not Exit.UNREACHABLE:
                raise
            self._show_silence(error)
            return None
        self.answered = True
        self._rates.add(monotonic(), self.subject.counters(progress))
        self._show(answer, progress)
        return progress

    def _show(self, answer: Answer, progress: Document) -> None:
        step, self._silent_since = self.subject.step(progress), None
        if self._live is not None:
            footer = Text(f"{_now()}  {_FOOTER}", "dim")
            self._live.update(Group(self._view(progress), footer), refresh=True)
        elif step != self._step:
            if self.tool.json:
                self.tool.write(answer.text)
            else:
                self.tool.say(f"{_now()}  {one_line(self.subject.facts(progress, self._rates))}")
        self._step = step

    def _view(self, progress: Document) -> RenderableType:
        return self.tool.facts(self.subject.facts(progress, self._rates))

    def _show_silence(self, error: ClientError) -> None:
        begins = self._silent_since is None
        if self._silent_since is None:
            self._silent_since = monotonic()
        seconds = monotonic() - self._silent_since
        if self._live is not None:
            text = f"No answer for {duration(seconds)}, retrying: {error.description}"
            self._live.update(plain(text, "yellow"), refresh=True)
        elif begins and not self.tool.json:
            self.tool.say(f"{_now()}  No answer, retrying: {error.description}")
        self._step = None


def _now() -> str:
    return datetime.now(UTC).isoformat(" ", "seconds").replace("+00:00", "Z")
