"""Runs the demo: shows a whole sync from its start to its commit while an application writes to the source.

The demo leaves no process and no file behind, unless it is killed by SIGKILL.
"""

import shlex
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Event
from time import monotonic
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import PyMongoError
from rich.console import Console
from rich.table import Table

from syncsvc.sandbox import ReplicaSet, SandboxError
from syncsvc.sandbox.demo.daemon import DaemonError, DaemonProcess, Progress
from syncsvc.sandbox.demo.display import Display
from syncsvc.sandbox.demo.flights import DATABASE, load_flights, sessions_about_to_expire
from syncsvc.sandbox.demo.interrupts import Interrupts
from syncsvc.sandbox.equality import Equality, compare_clusters
from syncsvc.sandbox.workload import Workload

APPLYING = "change event application"
SECONDS_OF_WRITING = 6.0
DEADLINE_SECONDS = 150.0
POLL_SECONDS = 0.25
INTERRUPTED = 130
NEXT = """
What next:
  {python} -m syncsvc.sandbox --data
      starts two clusters with the same data, and prints the commands of a sync for you to send.
  README.rst describes how to migrate your own clusters.
"""

Client = MongoClient[dict[str, Any]]


class Story:
    """Prints the headings and texts of the demo, and measures how many seconds each of its parts takes."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self.seconds: dict[str, float] = {}
        self._part = ""
        self._began = monotonic()

    def begin(self, part: str) -> None:
        self.end()
        self._part, self._began = part, monotonic()
        self.console.rule(f"[bold]{part}", align="left")

    def end(self) -> None:
        if self._part:
            self.seconds[self._part] = monotonic() - self._began

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Stage:
    """The objects that the demo uses: the clusters, the daemon, the application that writes, and the display."""

    story: Story
    source: Client
    destination: Client
    daemon: DaemonProcess
    workload: Workload
    display: Display

    @property
    def database(self) -> Database[dict[str, Any]]:
        return self.source[DATABASE]

    def watch(self, reached: Callable[[Progress], bool], what: str) -> None:
        """Show the progress until `reached(progress)` returns True.

        `what` names the awaited event, for the display and the error. Raises DaemonError after a timeout, or if the
        daemon or the sync fails; and the error of the workload if the workload has failed.
        """
        deadline = monotonic() + DEADLINE_SECONDS
        pause = Event()
        while not self._look(reached, what):
            if monotonic() > deadline:
                raise self.daemon.error(
                    f"Timed out after {DEADLINE_SECONDS:.0f} s while waiting for {what}."
                )
            pause.wait(POLL_SECONDS)

    def _look(self, reached: Callable[[Progress], bool], what: str) -> bool:
        self.workload.check()
        progress = self.daemon.progress()
        done = reached(progress)
        self.display.show(progress, self.workload.written, "" if done else what)
        return done


def main() -> int:
    # Look up the temporary folder now: the first lookup writes a test file, which an interrupt would leave behind.
    tempfile.gettempdir()
    interrupts = Interrupts()
    story = Story()
    try:
        equality = run(story, interrupts)
        show_result(story, equality)
    except KeyboardInterrupt:
        story.say("The demo has stopped, and has left no process and no file.")
        return INTERRUPTED
    except (DaemonError, SandboxError, PyMongoError) as error:
        story.say(f"{error}\nFAILED")
        return 1
    return 0 if equality.equal else 1


def run(story: Story, interrupts: Interrupts) -> Equality:
    stack = ExitStack()
    try:
        stage = set_up(story, stack, interrupts)
        sync(stage)
        return compare(stage)
    except KeyboardInterrupt:
        story.say("Stopping the demo: ending all processes and removing all files ...")
        raise
    finally:
        with interrupts.held():
            stack.close()


def set_up(story: Story, stack: ExitStack, interrupts: Interrupts) -> Stage:
    story.begin("Starting two replica sets")
    servers = ReplicaSet(name="source"), ReplicaSet(name="destination")
    with interrupts.held():
        for server in servers:
            stack.enter_context(server)
    source, destination = (stack.enter_context(server.client()) for server in servers)

    story.begin("Loading the flights that left New York in 2013")
    story.say(f"{load_flights(source):,} documents in the source, 0 in the destination.")

    story.begin("Starting the daemon")
    with interrupts.held():
        uris = [server.uri for server in servers]
        daemon = stack.enter_context(DaemonProcess(uris[0], uris[1], story.say))
    daemon.wait_until_ready()
    daemon.operate("status")
    written = [source[DATABASE][name] for name in ("flights", "weather", "bookings")]
    return Stage(story, source, destination, daemon, Workload(written), Display(story.console))


def sync(stage: Stage) -> None:
    with stage.display:
        with stage.workload:
            copy(stage)
            apply_change_events(stage)
        commit(stage)
    stage.daemon.operate("status")


def copy(stage: Stage) -> None:
    stage.story.begin("Copying while an application writes to the source")
    stage.daemon.operate("start")
    change_schema(stage.database)
    stage.watch(lambda progress: progress.info == APPLYING, "the end of the copy")


def apply_change_events(stage: Stage) -> None:
    stage.story.begin("Applying change events while the application keeps writing")
    change_schema_again(stage.database)
    until = monotonic() + SECONDS_OF_WRITING
    stage.watch(lambda _: monotonic() > until, "more changes by the application, for a few seconds")


def commit(stage: Stage) -> None:
    stage.story.begin("Committing")
    stage.story.say(
        f"The application is switched off. It has written documents: {stage.workload.written}."
    )
    # A session that expires after the commit would disappear from the two clusters at different times.
    stage.watch(
        lambda _: not sessions_about_to_expire(stage.database),
        "the TTL index to delete the sessions that are about to expire",
    )
    stage.watch(
        lambda progress: progress.can_commit,
        "canCommit: every document compared once, and a lag of at most 30 s",
    )
    stage.daemon.operate("commit", "--yes")
    stage.watch(
        lambda progress: progress.state == "COMMITTED",
        "COMMITTED: the last changes applied and compared, and the indexes made unique",
    )


def compare(stage: Stage) -> Equality:
    stage.story.begin("Comparing both clusters, document by document")
    equality = compare_clusters(stage.source, stage.destination)
    stage.story.end()
    return equality


def change_schema(database: Database[dict[str, Any]]) -> None:
    """Create indexes and collections while the copy runs."""
    database.flights.create_index("tailnum")
    database.weather.create_index([("origin", 1), ("temp", -1)])
    database.notes.insert_many([{"number": number} for number in range(1_000)])
    database.reviews.insert_many([{"stars": number % 5} for number in range(1_000)])


def change_schema_again(database: Database[dict[str, Any]]) -> None:
    """Drop some of the indexes and collections that `change_schema` has created, and create others."""
    database.flights.drop_index("tailnum_1")
    database.drop_collection("notes")
    database.reviews.create_index("stars")
    database.create_collection("crews").insert_one({"pilot": "Amelia"})


def show_result(story: Story, equality: Equality) -> None:
    for difference in equality.differences:
        story.say(difference)
    story.console.print(_totals(equality), _times(story))
    verdict = "[bold green]PASSED" if equality.equal else "[bold red]FAILED"
    story.console.print(verdict)
    if equality.equal:
        story.say(NEXT.format(python=shlex.quote(sys.executable)))


def _totals(equality: Equality) -> Table:
    table = Table("Compared", "Number")
    table.columns[1].justify = "right"
    table.add_row("collections and views", f"{equality.namespaces:,}")
    table.add_row("views", f"{equality.views:,}")
    table.add_row("indexes", f"{equality.indexes:,}")
    table.add_row("documents", f"{equality.documents:,}")
    table.add_row("bytes", f"{equality.bytes:,}")
    table.add_row("differences", "none" if equality.equal else "see above")
    return table


def _times(story: Story) -> Table:
    table = Table("Part", "Seconds")
    table.columns[1].justify = "right"
    for part, seconds in story.seconds.items():
        table.add_row(part, f"{seconds:.1f}")
    table.add_section()
    table.add_row("All", f"{sum(story.seconds.values()):.1f}")
    return table
