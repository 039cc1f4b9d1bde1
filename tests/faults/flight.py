"""Runs one sync with faults in its stages: from the listing to a commit, a reverse and a second commit.

There is no reverse if only one cluster is sharded. The test writes to the source continuously until the first commit.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

from pymongo.errors import PyMongoError

from syncsvc.engine.run.points import Point
from syncsvc.resuming import RESUMPTIONS, Resumption
from tests.faults.cells import Cell, Stage, Times
from tests.support.daemon import Daemon
from tests.support.failpoints import ALWAYS, Armed, FailPoints
from tests.support.failpoints import times as times_mode
from tests.support.pair import Pair
from tests.support.waiting import wait_for
from tests.support.writes import AnyClient

# The fixture `record_property` of pytest: saves a value by name for `--record`.
Record = Callable[[str, object], None]
_OPTIONS = {"enableUserWriteBlocking": "sourceAndDestination", "buildIndexes": "afterDataCopy"}
# The time limit of a stage, in seconds. A stage with its faults takes a small part of this time, unless it hangs.
DEADLINE = 120.0
# Failures after which a resume or a restart continues the sync. Faults of the matrix must cause no other failures.
TEMPORARY = {kind.name for kind, each in RESUMPTIONS.items() if each is Resumption.CONTINUED}
_MOST_RECOVERIES = 30
_MOST_ROUNDS = 40
# The duration of a fault that does not occur a fixed number of times, in seconds.
_LONG_FAULT = 20.0
# The interval, in seconds, at which all members are asked whether their faults have occurred.
_POLL_INTERVAL = 0.1
# A fault that has not occurred again for this time, in seconds, gives its turn to the next fault.
_TURN = 1.0
# The time between two rounds of writes, in seconds: short enough for writes in every stage, and long enough that the
# servers are not overloaded.
_WRITE_INTERVAL = 0.25
_pause = threading.Event()


class SyncNotRecovered(AssertionError):
    """Raised if a sync fails with an error that must not occur, fails again after a restart, or fails too often."""


class Action(Protocol):
    """Disturbs the clusters or the daemon during one stage of a sync, while the sync continues."""

    def run(self, over: threading.Event) -> None:
        """Make the disturbance, and return when it is complete.

        `over` is set when the stage ends; the action can then return early.
        """


@dataclass(frozen=True)
class Disturbance:
    """An action that calls `disturb` once. The end of the stage does not interrupt the call: the test waits for it."""

    name: str
    disturb: Callable[[], None]

    def run(self, over: threading.Event) -> None:
        self.disturb()


class Sabotage:
    """An action that arms the faults of its cells in turn until all have occurred or the stage ends.

    All cells have the same stage and cluster. The constructor arms the first fault. A fault that does not occur in its
    turn gets another turn. Exception: a fault of 20 seconds gets only one turn, which lasts for its full time, even if
    the stage ends earlier.
    """

    def __init__(
        self, points: FailPoints, cells: list[Cell], journal: list[str], **filters: Any
    ) -> None:
        """Arm the fault of the first cell on the servers of `points`.

        When a fault has occurred, the description of its cell is appended to `journal`. `filters` are additional fields
        of every fail point.
        """
        self._journal = journal
        self._filters = filters
        self._points = points
        self.cells = cells
        self._first: Armed | None = self._arm(cells[0])
        self.struck: list[Cell] = []

    def _arm(self, cell: Cell) -> Armed:
        mode = ALWAYS if cell.times is Times.FOR_20_SECONDS else times_mode(cell.times.value)
        return self._points.arm(cell.fault, [cell.command], mode, **self._filters)

    def run(self, over: threading.Event) -> None:
        armed, waiting = self._first, deque(self.cells)
        while waiting and not over.is_set():
            cell = waiting.popleft()
            armed = armed or self._arm(cell)
            self._wait(cell, armed, over)
            if armed.end():
                self.struck.append(cell)
                self._journal.append(str(cell))
            elif cell.times is not Times.FOR_20_SECONDS:
                waiting.append(cell)
            armed = None
        if armed is not None:
            armed.end()

    def _wait(self, cell: Cell, armed: Armed, over: threading.Event) -> None:
        """Wait until the fault has occurred as often as it should, its turn ends, or the stage is over."""
        if cell.times is Times.FOR_20_SECONDS:
            # Wait even if the stage could end earlier: the refused commands delay its end.
            _pause.wait(_LONG_FAULT)
            return
        count, since = 0, monotonic()
        while monotonic() - since < _TURN:
            before, count = count, armed.count()
            if count >= cell.times.value or over.wait(_POLL_INTERVAL):
                return
            if count > before:
                since = monotonic()


class Journey:
    """Runs one sync through all stages, with the given actions in each stage.

    If the sync fails, a Journey resumes it or restarts the daemon, as a user would.
    """

    def __init__(
        self, pair: Pair, daemon: Daemon, actions: Callable[[Stage], Sequence[Action]]
    ) -> None:
        """Prepare the sync. `actions` is called when a stage begins, and returns the actions to run during it."""
        self.pair = pair
        self.daemon = daemon
        self.failures: list[str] = []
        self.journal: list[str] = []
        self.stage: Stage | None = None
        self.seconds: dict[Stage, float] = {}
        self._sabotages: list[Sabotage] = []
        self._actions = actions
        self._stack = ExitStack()

    def fly(self) -> None:
        """Run all stages of the sync, and compare the clusters after each commit.

        Raises SyncNotRecovered if a resume or a restart does not help after a failure, DeadlinePassed if a stage takes
        too long, and AssertionError if the clusters differ.
        """
        with self._stack:
            self._fly()

    def _fly(self) -> None:
        daemon, source = self.daemon, self.pair.source.client
        copied = self._hold(Point.COLLECTION_COPIED, number=collections_of(source))
        listed, built = self._hold(Point.LISTED), self._hold(Point.INDEXES_BUILT)
        started = self._hold(Point.STARTED)
        reversible = self.pair.has_equal_sides
        self._command("start", daemon.start_body(**_OPTIONS, reversible=reversible))
        self._until_held(started)
        with writing(source):
            with self._struck_in(Stage.LISTING):
                started.release()
                self._until_held(listed)
            with self._struck_in(Stage.COPY):
                listed.release()
                self._until_held(copied)
            with self._struck_in(Stage.INDEXES):
                copied.release()
                self._until_held(built)
            with self._struck_in(Stage.VERIFICATION):
                built.release()
                self._until(lambda progress: progress["canCommit"], "canCommit")
            with self._struck_in(Stage.EVENTS) as over:
                self._define_until(over)
        with self._struck_in(Stage.COMMIT):
            self._commit()
        self.pair.assert_equal()
        if reversible:
            self._reverse_and_commit()

    def _reverse_and_commit(self) -> None:
        with self._struck_in(Stage.REVERSE):
            self._reverse()
        patiently(lambda: write(self.pair.destination.client, 1000))
        self._commit()
        self.pair.assert_equal()

    def faults(self) -> dict[str, int]:
        """Return the number of faults planned so far (`planned`), and how many of them have occurred (`struck`)."""
        planned = sum(len(each.cells) for each in self._sabotages)
        return {"planned": planned, "struck": sum(len(each.struck) for each in self._sabotages)}

    def _hold(self, point: Point, number: int = 1) -> _Hold:
        hold = _Hold(self.daemon, point, number)
        self._stack.callback(hold.release)
        return hold

    @contextmanager
    def _struck_in(self, stage: Stage) -> Iterator[Callable[[], bool]]:
        """Run the actions of a stage during the block. The yielded function returns whether all actions are done."""
        self.stage, began, over = stage, monotonic(), threading.Event()
        actions = self._actions(stage)
        self._sabotages += [each for each in actions if isinstance(each, Sabotage)]
        with ThreadPoolExecutor(max_workers=max(1, len(actions))) as executor:
            running = [executor.submit(each.run, over) for each in actions]
            try:
                yield lambda: all(each.done() for each in running)
            finally:
                over.set()
        for each in running:
            each.result()
        self.seconds[stage] = monotonic() - began

    def _until_held(self, hold: _Hold) -> None:
        later = _INFO_AFTER[hold.point]
        self._until(lambda p: hold.is_reached() or p["info"] in later, hold.point.value)

    def _until_applied(self, mark: str) -> None:
        mark_it = self.pair.source.client.d.plain.update_one
        patiently(lambda: mark_it({"_id": mark}, {"$set": {"marked": True}}, upsert=True))
        plain = self.pair.destination.client.d.plain

        def is_found() -> bool:
            # The destination may have no primary for longer than the driver waits.
            with suppress(PyMongoError):
                return plain.find_one({"_id": mark}) is not None
            return False

        self._until(lambda progress: is_found(), mark)

    def _define_until(self, over: Callable[[], bool]) -> None:
        """Run rounds of DDL operations on the source until `over` returns true; wait until each round is applied.

        The number of rounds is limited, because `over` might never return true.
        """
        for number in range(_MOST_ROUNDS):
            with suppress(PyMongoError):
                define(self.pair.source.client, number)
            self._until_applied(f"mark {number}")
            if over():
                return

    def _commit(self) -> None:
        def committed(progress: dict[str, Any]) -> bool:
            if progress["state"] == "RUNNING" and progress["canCommit"]:
                self._post("commit")
            return bool(progress["state"] == "COMMITTED")

        self._until(committed, "COMMITTED")

    def _reverse(self) -> None:
        def reversed_(progress: dict[str, Any]) -> bool:
            if progress["state"] == "COMMITTED":
                self._post("reverse")
            return bool(progress["state"] == "RUNNING")

        self._until(reversed_, "reversed")

    def _command(self, name: str, body: Any) -> None:
        answer = self.daemon.post(name, body)
        assert answer.ok, answer.text

    def _post(self, name: str) -> None:
        """Send a command. If the daemon refuses the command, add the error to the journal instead of failing."""
        answer = self.daemon.post(name)
        if not answer.ok:
            refused = answer.json()
            assert refused["errorDescription"], refused
            self.journal.append(f"/{name} refused: {refused['error']}")

    def _until(self, holds: Callable[[dict[str, Any]], bool], what: str) -> None:
        """Wait until `holds` is true for the progress. If the sync fails, recover it as a user would.

        `what` describes the awaited condition in the error after a timeout.
        """

        def look() -> bool:
            progress = self.daemon.progress_if_it_answers()
            if progress is None:
                # An action has killed the daemon, and will restart it.
                return False
            if progress["state"] == "FAILED":
                self._recover(progress)
                return False
            return bool(holds(progress))

        wait_for(look, f"{what} in {self.stage} after {self.journal[-6:]}", DEADLINE)

    def _recover(self, progress: dict[str, Any]) -> None:
        name, description = progress["error"], progress["errorDescription"]
        failure = f"{name}: {description}"
        self.failures.append(failure)
        self.journal.append(f"FAILED {failure}")
        assert name and description, progress
        if len(self.failures) > _MOST_RECOVERIES:
            raise SyncNotRecovered(f"fails again and again: {self.failures[-3:]}")
        if name in TEMPORARY:
            if self.daemon.post("resume").ok:
                return
            self.daemon.terminate()
            self._run_again()
        if name not in TEMPORARY or self.daemon.progress()["state"] == "FAILED":
            raise SyncNotRecovered(f"{self.stage}: {failure} after {self.journal[-6:]}")

    def _run_again(self) -> None:
        """Restart the process until it accepts commands.

        A fault can end the process while it starts. The process must then name an error, and is restarted again.
        """
        self.daemon.launch()

        def runs() -> bool:
            if self.daemon.exit_status is not None:
                last = self.daemon.output.rstrip().rpartition("\n")[2]
                assert re.match(r"syncsvc: \w+: ", last), self.daemon.output[-2000:]
                self.journal.append(f"not started: {last}")
                self.daemon.launch()
            return self.daemon.answers(ready=True)

        wait_for(runs, f"the process runs again in {self.stage}", DEADLINE)


class _Hold:
    """Makes the daemon wait at a named point of its code until `release` is called."""

    def __init__(self, daemon: Daemon, point: Point, number: int) -> None:
        self.point = point
        self._daemon = daemon
        self._number = number
        self._held = ExitStack()
        self._held.enter_context(daemon.held_at(point, number=number))

    def is_reached(self) -> bool:
        return self._daemon.has_reached(self.point, number=self._number)

    def release(self) -> None:
        self._held.close()


_APPLYING = ("change event application",)
_INDEXING = ("building indexes", *_APPLYING)
_COPYING = ("collection copy", *_INDEXING)
# The values of `info` that show that a sync has passed a point: a restarted process may pass it without being held.
_INFO_AFTER = {
    Point.STARTED: _COPYING,
    Point.LISTED: _COPYING,
    Point.COLLECTION_COPIED: _INDEXING,
    Point.INDEXES_BUILT: _APPLYING,
}


def fill(pair: Pair, documents: int = 200) -> None:
    """Create a few collections of several kinds on the source, with documents, indexes and a view."""
    d = pair.source.client.d
    for name in ("hashed", "plain"):
        if name == "hashed":
            pair.shard("d.hashed")
        d[name].create_index("n")
        d[name].create_index("u", unique=not pair.is_sharded, sparse=True)
        pad = "p" * 1000
        d[name].insert_many({"_id": n, "n": n, "u": n, "pad": pad} for n in range(documents))
    d.create_collection("capped", capped=True, size=100_000)
    d.capped.insert_many({"_id": n} for n in range(20))
    for n in range(4):
        d[f"small {n}"].insert_many({"_id": i, "n": i} for i in range(5))
        d[f"small {n}"].create_index("n")
    d.command({"create": "view", "viewOn": "plain", "pipeline": [{"$match": {"n": {"$gt": 3}}}]})


def collections_of(client: AnyClient) -> int:
    found = client.d.list_collections(filter={"type": "collection"})
    return sum(not each["name"].startswith("system.") for each in found)


def write(client: AnyClient, number: int) -> None:
    """Insert, update, replace and delete documents. `number` is part of the new `_id`s, so each call needs another."""
    for name in ("hashed", "plain"):
        c = client.d[name]
        c.insert_many([{"_id": f"{number} {n}", "n": n} for n in range(5)])
        some = {"_id": {"$lt": 100, "$mod": [10, number % 10]}}
        c.update_many(some, {"$inc": {"k": 1}, "$set": {f"f{number % 5}": number}})
        c.replace_one({"_id": number % 100}, {"replaced": number, "n": number})
        c.delete_many({"_id": {"$in": [f"{number - 1} {n}" for n in range(4)]}})


@contextmanager
def writing(client: AnyClient) -> Iterator[None]:
    """Write to the cluster repeatedly during the block, in another thread. Errors of these writes are ignored."""
    stop = threading.Event()

    def run() -> None:
        number = 0
        while not stop.wait(_WRITE_INTERVAL):
            number += 1
            with suppress(PyMongoError):
                write(client, number)

    with ThreadPoolExecutor(max_workers=1) as executor:
        running = executor.submit(run)
        try:
            yield
        finally:
            stop.set()
        running.result()


def define(client: AnyClient, number: int) -> None:
    """Create a collection, change and rename it; drop the collection that the call for `number - 1` has renamed.

    The last update changes so many documents that the daemon applies it in a transaction. After a failed transaction,
    the daemon applies the next batches for that collection name without transactions, so each call uses a new name.
    """
    d, name = client.d, f"new {number}"
    d.create_collection(name)
    d[name].insert_many({"_id": n, "n": n} for n in range(100))
    d[name].create_index("n", name="later")
    d.command({"collMod": name, "validator": {"n": {"$gte": 0}}})
    d[name].create_index("m")
    d[name].drop_index("m_1")
    d[name].delete_many({"_id": {"$lt": 3}})
    d.drop_collection(f"renamed {number - 1}")
    d[name].rename(f"renamed {number}")
    d[f"renamed {number}"].update_many({}, {"$inc": {"k": 1}})


def patiently(write: Callable[[], Any]) -> None:
    """Call `write` until it raises no driver error, because the cluster may have no primary for a while."""

    def done() -> bool:
        with suppress(PyMongoError):
            write()
            return True
        return False

    wait_for(done, "a write of the test")
