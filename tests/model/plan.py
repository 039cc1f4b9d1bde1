"""Plans a run of the model test: the operations of every thread, and when the daemon is held and killed.

The functions are pure: the plan depends only on the seed and the profile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random

from syncsvc.engine.run.points import Point
from tests.model import sharding
from tests.model.definitions import Definitions
from tests.model.operation import Document, End, Operation
from tests.model.selection import FILTER, leaves
from tests.model.writes import Writes
from tests.support.pair import Topology
from tests.support.shapes import Kind


class Profile(Enum):
    """A kind of run: clusters, operations during the sync, and options, such as new names or several daemons."""

    DATA = "data"
    DEFINITIONS = "definitions"
    MOSTLY_DEFINITIONS = "mostly-definitions"
    FILTERED = "filtered"
    TO_SHARDED = "to-sharded"
    FROM_SHARDED = "from-sharded"
    SHARDED = "sharded"
    INSTANCES = "instances"
    SHARED_SOURCE = "shared-source"
    OLD_SOURCE = "old-source"
    RENAMED = "renamed"
    SELECTED = "selected"
    BESIDE = "beside"

    @property
    def kind(self) -> Kind:
        kinds = {
            Profile.RENAMED: Kind.RENAMED,
            Profile.SELECTED: Kind.SELECTED,
            Profile.BESIDE: Kind.BESIDE,
        }
        return kinds.get(self, Kind.PLAIN)

    @property
    def topology(self) -> Topology:
        topologies = {
            Profile.TO_SHARDED: Topology.TO_SHARDED,
            Profile.FROM_SHARDED: Topology.FROM_SHARDED,
            Profile.SHARDED: Topology.SHARDED,
            Profile.INSTANCES: Topology.SHARDED,
        }
        return topologies.get(self, Topology.REPLICA_SETS)

    def fits(self, operation: Operation) -> bool:
        """Return whether the operation may be used with this profile; false if it would make the sync fail."""
        if self is Profile.FILTERED:
            return not leaves(operation)
        if self is Profile.OLD_SOURCE:
            return not any("timeseries" in each for each in operation.commands)
        return self.topology is Topology.REPLICA_SETS or not sharding.unfit(operation)

    def fits_write(self, operation: Operation) -> bool:
        """Return whether a write of documents may be used with this profile."""
        if self is Profile.TO_SHARDED:
            return not sharding.is_untargetable(operation)
        # The stand-in for mongos in the tests does not support transactions.
        return not self.topology.from_sharded or operation.end is None


@dataclass(frozen=True)
class Passing:
    """A kill of the daemon when it passes `point` for the nth time; n is `number`.

    `subject` is a detail that the daemon reports at the point, such as the name of a step. If `subject` is not empty,
    only passes with this subject count.
    """

    point: Point
    number: int = 1
    subject: str = ""


@dataclass(frozen=True)
class Delay:
    """A kill of the daemon `seconds` after a stage has begun: by SIGTERM if `gentle`, otherwise by SIGKILL.

    If the kill of an earlier stage has not happened yet, the time counts from the restart after that kill.
    """

    seconds: float
    gentle: bool


Kill = Passing | Delay
Stream = tuple[Operation, ...]


@dataclass(frozen=True)
class Stage:
    """One stage of a run. `streams` contains the operations of each thread.

    While they run, the daemon is held at the point `hold`, unless that is None. When the stage begins, `kill` is
    scheduled, unless it is None. If the daemon does not reach the point of the kill in this stage, the kill happens in
    a later stage, before the kill of that stage.
    """

    streams: tuple[Stream, ...]
    hold: Passing | None = None
    kill: Kill | None = None


@dataclass(frozen=True)
class Plan:
    """The plan of a run: its operations, kills and options.

    The operations of `before` precede the start of the sync; the commit follows the last stage of `applying`.
    """

    before: Stage
    initializing: Stage
    copying: Stage
    applying: tuple[Stage, ...]
    commit_kill: Kill | None
    # Transactions that are open when the sync starts: one is committed after the stage `copying`, the other is aborted
    # after the commit.
    open_during_copy: Operation | None
    open_during_commit: Operation | None
    start_options: Document
    kind: Kind
    filtered: bool
    sharded: bool
    several_instances: bool
    old_source: bool
    classic_updates: bool
    save_every_page: bool
    load_level: int
    small_partitions: bool


_WRITERS = 3


@dataclass(frozen=True)
class Amount:
    """The number of operations of each thread in each stage, and the share of DDL operations in them, from 0 to 1."""

    initializing: int
    copying: int
    applying: int
    share: float


_AMOUNTS = {
    Profile.DATA: Amount(25, 35, 50, 0),
    Profile.DEFINITIONS: Amount(20, 30, 40, 0.2),
    Profile.MOSTLY_DEFINITIONS: Amount(12, 16, 20, 0.6),
    Profile.FILTERED: Amount(20, 30, 40, 0.3),
    Profile.TO_SHARDED: Amount(20, 30, 40, 0.2),
    Profile.FROM_SHARDED: Amount(20, 30, 40, 0.2),
    Profile.SHARDED: Amount(20, 30, 40, 0.2),
    Profile.INSTANCES: Amount(20, 30, 40, 0.2),
    Profile.SHARED_SOURCE: Amount(20, 30, 40, 0.3),
    Profile.OLD_SOURCE: Amount(12, 16, 20, 0.6),
    Profile.RENAMED: Amount(20, 30, 40, 0.3),
    Profile.SELECTED: Amount(20, 30, 40, 0.2),
    Profile.BESIDE: Amount(20, 30, 40, 0.3),
}
# The last operations of each thread before the sync: their number, and the share of DDL operations in them.
_BEFORE, _SHARE_BEFORE = 25, 0.3
_STEPS = (
    "definitions prepared",
    "indexes of earlier versions built",
    "source checked",
    "destination unblocked",
    "destination writable",
    "indexes unique",
    "expiration restored",
)

# The points of each phase, each with the maximum number of passes before a kill.
_KILLS_OF_START = (
    (Point.STARTED, 1),
    (Point.COLLECTION_CREATED, 6),
    (Point.LISTED, 1),
)
_KILLS_OF_COPY = (
    (Point.BATCH_WRITTEN, 8),
    (Point.COPY_SAVED, 4),
    (Point.COLLECTION_COPIED, 8),
)
_KILLS_OF_APPLICATION = (
    (Point.EVENTS_APPLIED, 30),
    (Point.DEFINITION_APPLIED, 12),
    (Point.POSITION_SAVED, 2),
)
# An old source sends no DDL events. So the sync also copies collections and changes definitions while it applies change
# events.
_KILLS_WITH_OLD_SOURCE = (
    *_KILLS_OF_APPLICATION,
    (Point.REDEFINED, 3),
    (Point.BATCH_WRITTEN, 3),
)
_KILLS_OF_COMMIT = ((Point.STEP_DONE, 1), (Point.POSITION_SAVED, 1), (Point.DEFINITION_APPLIED, 1))


def plan(seed: int, profile: Profile) -> Plan:
    """Return the plan of a run. The same seed and profile always lead to the same plan."""
    random = Random(f"{seed} {profile.value}")
    amount = _AMOUNTS[profile]
    filtered = profile is Profile.FILTERED
    old_source = profile is Profile.OLD_SOURCE
    kills = _KILLS_WITH_OLD_SOURCE if old_source else _KILLS_OF_APPLICATION
    writers = [_Writer(seed, number, profile) for number in range(_WRITERS)]

    def streams(number: int) -> tuple[Stream, ...]:
        return tuple(each.operations(number, amount.share) for each in writers)

    return Plan(
        before=Stage(tuple(each.beginning(_BEFORE) for each in writers)),
        initializing=Stage(
            streams(amount.initializing),
            _hold_of_start(random),
            _kill(random, 0.4, _KILLS_OF_START),
        ),
        copying=Stage(
            streams(amount.copying), _hold_of_copy(random), _kill(random, 0.5, _KILLS_OF_COPY)
        ),
        applying=tuple(
            Stage(streams(amount.applying), kill=_kill(random, 0.6, kills)) for _ in range(2)
        ),
        commit_kill=_kill(random, 0.3, _KILLS_OF_COMMIT),
        open_during_copy=_open_transaction(seed, 0, profile, End.COMMIT),
        open_during_commit=_open_transaction(seed, 1, profile, End.ABORT),
        start_options={
            "verification": {"enabled": random.random() < 0.75, "repair": "never"},
            "buildIndexes": random.choice(("beforeDataCopy", "afterDataCopy")),
            **(FILTER if filtered else {}),
        },
        kind=profile.kind,
        filtered=filtered,
        sharded=profile.topology is not Topology.REPLICA_SETS,
        several_instances=profile in (Profile.INSTANCES, Profile.SHARED_SOURCE),
        old_source=old_source,
        classic_updates=random.random() < 0.2,
        save_every_page=random.random() < 0.5,
        load_level=random.randint(1, 4),
        small_partitions=random.random() < 0.5,
    )


class _Writer:
    """Generates the random operations of one thread. The operations do not depend on the replies of the server."""

    def __init__(self, seed: int, number: int, profile: Profile) -> None:
        self._random = Random(f"{seed} writer {number}")
        self._writes = Writes(self._random, f"w{number}")
        self._definitions = Definitions(self._random)
        self._profile = profile

    def beginning(self, number: int) -> Stream:
        return (
            *self.operations(8, 1.0),
            *(_fitting(self._profile, self._writes.filling) for _ in range(12)),
            *self.operations(number, _SHARE_BEFORE),
        )

    def operations(self, number: int, share: float) -> Stream:
        return tuple(self._operation(share) for _ in range(number))

    def _operation(self, share: float) -> Operation:
        if self._random.random() >= share:
            return self._write()
        change = self._definitions.change()
        while not self._profile.fits(change):
            change = self._definitions.change()
        return change

    def _write(self) -> Operation:
        return _fitting(self._profile, self._writes.write)


def _open_transaction(seed: int, number: int, profile: Profile, end: End) -> Operation | None:
    if profile.topology.from_sharded:
        return None
    random = Random(f"{seed} transaction {number}")
    writes = Writes(random, f"t{number}")
    return _fitting(profile, lambda: writes.long_transaction(end))


def _fitting(profile: Profile, write: Callable[[], Operation]) -> Operation:
    """Call `write` until it returns an operation that fits the profile, and return this operation."""
    while not profile.fits_write(operation := write()):
        continue
    return operation


def _hold_of_start(random: Random) -> Passing | None:
    point = random.choice((Point.STARTED, Point.COLLECTION_CREATED, Point.LISTED))
    return Passing(point) if random.random() < 0.6 else None


def _hold_of_copy(random: Random) -> Passing | None:
    point = random.choice((Point.BATCH_WRITTEN, Point.COLLECTION_COPIED))
    return Passing(point, random.randint(1, 4)) if random.random() < 0.6 else None


def _kill(random: Random, probability: float, kills: tuple[tuple[Point, int], ...]) -> Kill | None:
    """Return a random kill at one of the points in `kills`, or after a delay; return None if no kill is to happen.

    `probability` is the probability of a kill. `kills` contains pairs of a point and a number n: the daemon is killed
    at its kth pass of the point, where k is random from 1 to n.
    """
    if random.random() > probability:
        return None
    if random.random() < 0.3:
        return Delay(random.uniform(0, 0.5), gentle=random.random() < 0.3)
    point, most = random.choice(kills)
    subject = random.choice(_STEPS) if point is Point.STEP_DONE else ""
    return Passing(point, random.randint(1, most), subject)
