"""Shows the progress of a sync: live in a terminal, otherwise as a line from time to time."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from syncsvc.sandbox.demo.daemon import Progress
from syncsvc.sandbox.workload import Written

SECONDS_BETWEEN_LINES = 2.0
BAR_WIDTH = 30
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Rate:
    """The average speed of the copy from `began` to `moved`, the last time at which the number of copied bytes rose."""

    # In seconds of the monotonic clock.
    began: float
    moved: float
    # In bytes.
    copied: int = 0

    def after(self, copied: int, now: float) -> "Rate":
        return replace(self, moved=now, copied=copied) if copied > self.copied else self

    @property
    def megabytes_a_second(self) -> float:
        seconds = self.moved - self.began
        return self.copied / MEGABYTE / seconds if seconds else 0.0


class Display:
    """Shows the progress of a sync while the `with` block runs.

    Each warning of the daemon is printed once. In a terminal, the figures are updated in the last lines, below all
    other output. Otherwise, a line with the figures is printed from time to time.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False)
        self._rate = Rate(monotonic(), monotonic())
        self._last_line = ("", 0.0)
        self._warned: set[str] = set()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, progress: Progress, written: Written, waiting_for: str) -> None:
        """Show the progress of the sync, the writes of the application, and the event for which the demo waits.

        `waiting_for` names this event; it is empty if the demo waits for nothing.
        """
        self._rate = self._rate.after(progress.copied_bytes, monotonic())
        self._warn(progress.warnings)
        facts = {
            "state": f"{progress.state}, {progress.info}" if progress.info else progress.state,
            "copied": self._copied(progress),
            "compared": _compared(progress),
            "lag": _lag(progress),
            "writer": str(written),
        }
        if waiting_for:
            facts["waiting for"] = waiting_for
        if self._console.is_terminal:
            self._live.update(_table(facts, progress), refresh=True)
        else:
            self._show_line(facts)

    def _warn(self, warnings: Sequence[str]) -> None:
        """Print each warning of the daemon once, even if the figures in its text change later."""
        for text in warnings:
            key = re.sub(r"\d+", "0", text)
            if key not in self._warned:
                self._warned.add(key)
                self._console.print(
                    f"  WARNING: {text}", style="yellow", markup=False, soft_wrap=True
                )

    def _copied(self, progress: Progress) -> str:
        copied, total = progress.copied_bytes / MEGABYTE, progress.total_bytes / MEGABYTE
        return f"{copied:.1f} of {total:.1f} MB, {self._rate.megabytes_a_second:.1f} MB/s"

    def _show_line(self, facts: dict[str, str]) -> None:
        state, printed = self._last_line
        if facts["state"] == state and monotonic() - printed < SECONDS_BETWEEN_LINES:
            return
        self._last_line = facts["state"], monotonic()
        line = "; ".join(f"{name}: {text}" for name, text in facts.items())
        self._console.print(f"  {line}", markup=False, soft_wrap=True)


def _table(facts: dict[str, str], progress: Progress) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    bar = ProgressBar(max(progress.total_bytes, 1), progress.copied_bytes, width=BAR_WIDTH)
    compared = ProgressBar(
        max(progress.total_documents or 1, 1), progress.compared_documents, width=BAR_WIDTH
    )
    bars: dict[str, RenderableType] = {"copied": bar, "compared": compared}
    for name, text in facts.items():
        table.add_row(Text(name, "bold"), Text(text), bars.get(name, ""))
    return table


def _compared(progress: Progress) -> str:
    if progress.total_documents is None:
        return "begins after the copy"
    compared, total = progress.compared_documents, progress.total_documents
    # Before the commit, a difference may be a change that has not been applied yet.
    status = "differ" if progress.state == "COMMITTED" else "to be compared again"
    return f"{compared:,} of {total:,} documents, {progress.mismatches} {status}"


def _lag(progress: Progress) -> str:
    if progress.lag_seconds is None:
        return "measured after the copy"
    return f"{progress.lag_seconds} s, {progress.events_applied:,} change events applied"
