"""The cells of the fault matrix: each is a fault of one command, on one cluster, in one stage of a sync.

A flight is one sync that tests several cells.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations, product
from random import Random
from typing import Any

from tests.support.failpoints import CLOSED, Fault, blocked, error, write_concern_error


class Stage(Enum):
    """A stage of a sync. The members are in the order in which a sync passes them."""

    LISTING = "listing"
    COPY = "copy"
    INDEXES = "index build"
    VERIFICATION = "verification"
    EVENTS = "events"
    COMMIT = "commit"
    REVERSE = "reverse"


class On(Enum):
    """The cluster that a fault affects, by its role at the start of the sync."""

    SOURCE = "source"
    DESTINATION = "destination"


class Times(Enum):
    ONCE = 1
    THREE_TIMES = 3
    FOR_20_SECONDS = 0


# The commands that the daemon sends to replica sets in each stage, as recorded by a proxy. The test
# test_the_matrix_has_the_commands_of_a_sync keeps the table up to date. The faults of a flight are armed in the order
# of the table, in which most of them occurred in experiments.
COMMANDS: dict[tuple[Stage, On], tuple[str, ...]] = {
    (Stage.LISTING, On.SOURCE): (
        *("listDatabases", "listCollections", "listIndexes", "aggregate", "dataSize", "find"),
    ),
    (Stage.LISTING, On.DESTINATION): ("update", "listCollections", "create"),
    (Stage.COPY, On.SOURCE): ("find",),
    (Stage.COPY, On.DESTINATION): ("insert", "update"),
    (Stage.INDEXES, On.SOURCE): ("appendOplogNote",),
    (Stage.INDEXES, On.DESTINATION): ("listIndexes", "createIndexes", "update"),
    (Stage.VERIFICATION, On.SOURCE): (
        *("aggregate", "getMore", "listDatabases", "listCollections", "listIndexes", "count"),
        *("dataSize", "find"),
    ),
    (Stage.VERIFICATION, On.DESTINATION): (
        *("aggregate", "find", "listCollections", "insert", "listDatabases", "getMore"),
        *("update", "listIndexes"),
    ),
    (Stage.EVENTS, On.SOURCE): ("getMore",),
    (Stage.EVENTS, On.DESTINATION): (
        *("insert", "update", "getMore", "delete", "listCollections", "renameCollection"),
        *("create", "listIndexes", "drop", "collMod", "createIndexes", "dropIndexes"),
        *("listDatabases", "commitTransaction"),
    ),
    (Stage.COMMIT, On.SOURCE): (
        *("setUserWriteBlockMode", "appendOplogNote", "listDatabases", "listCollections"),
        *("listIndexes", "aggregate", "find", "killCursors", "getMore"),
    ),
    (Stage.COMMIT, On.DESTINATION): (
        *("getMore", "update", "find", "listDatabases", "listCollections"),
        *("appendOplogNote", "listIndexes", "aggregate", "collMod"),
        *("setUserWriteBlockMode", "killCursors"),
    ),
    (Stage.REVERSE, On.SOURCE): (
        *("aggregate", "setUserWriteBlockMode", "listDatabases", "listCollections"),
        *("listIndexes", "collMod", "listCommands"),
    ),
    (Stage.REVERSE, On.DESTINATION): ("aggregate", "update", "find", "listCommands"),
}

# The commands for documents of a sharded collection that shards receive. The router sends them under internal names.
# Shards send them to each other under the plain names; the router reports errors of the latter inside `writeErrors`.
SHARD_COMMANDS: dict[tuple[Stage, On], tuple[str, ...]] = {
    (Stage.COPY, On.SOURCE): ("find", "clusterFind"),
    (Stage.COPY, On.DESTINATION): ("insert", "clusterInsert"),
    (Stage.VERIFICATION, On.SOURCE): ("find", "clusterFind"),
    (Stage.VERIFICATION, On.DESTINATION): ("find", "clusterFind"),
    (Stage.EVENTS, On.DESTINATION): (
        *("insert", "clusterInsert", "update", "clusterUpdate", "delete", "clusterDelete"),
    ),
}

_TRANSIENT = (6, 7, 89, 91, 189, 11600, 11602, 10107, 13435, 9001, 262, 112, 246)
_UNFORESEEN = (
    *(365, 24, 50, 355, 14031, 317, 202, 8, 12587, 276, 46, 117, 237, 96, 279, 292, 146, 273),
)
_LOST_CURSOR = (43, 175)
_REFUSED_LOGIN = (13, 18)

# The faults by class. The pairwise selection combines every class with every command, and includes every fault.
FAULTS: dict[str, tuple[Fault, ...]] = {
    "transient": tuple(map(error, _TRANSIENT)),
    "unforeseen": tuple(map(error, _UNFORESEEN)),
    "lost cursor": tuple(map(error, _LOST_CURSOR)),
    "refused login": tuple(map(error, _REFUSED_LOGIN)),
    "closed": (CLOSED,),
    "blocked": (blocked(1),),
    "unconfirmed": tuple(map(write_concern_error, (64, 79, 91, 189))),
}
CLASS_OF = {fault.name: name for name, faults in FAULTS.items() for fault in faults}

_CONFIRMED = frozenset(
    {
        *("insert", "update", "delete", "create", "createIndexes", "collMod", "dropIndexes"),
        *("drop", "renameCollection", "setUserWriteBlockMode", "appendOplogNote"),
        "commitTransaction",
        *("clusterInsert", "clusterUpdate", "clusterDelete"),
    }
)


@dataclass(frozen=True)
class Cell:
    stage: Stage
    on: On
    command: str
    fault: Fault
    times: Times

    def __str__(self) -> str:
        times = self.times.name.lower().replace("_", " ")
        return f"{self.stage.value}: {self.command} on {self.on.value}, {self.fault}, {times}"

    @property
    def where(self) -> tuple[Stage, On]:
        return self.stage, self.on

    @property
    def kind(self) -> str:
        return CLASS_OF[self.fault.name]


Flight = tuple[Cell, ...]


Commands = Mapping[tuple[Stage, On], tuple[str, ...]]


def all_cells(times: Collection[Times], commands: Commands = COMMANDS) -> Iterator[Cell]:
    """Yield a cell for each combination of a stage, a cluster, one of its commands, a fault and one of `times`.

    `times` says how often, or for how long, a fault occurs. `commands` maps a stage and a cluster to commands. Write
    concern errors are only combined with commands that have a write concern.
    """
    faults = [fault for each in FAULTS.values() for fault in each]
    for where, names in commands.items():
        for command, fault, often in product(names, faults, times):
            if "unconfirmed" != CLASS_OF[fault.name] or command in _CONFIRMED:
                yield Cell(*where, command, fault, often)


def alternating(cells: Iterable[Cell]) -> list[Cell]:
    """Return one cell for each combination of a stage, a cluster, a command and a fault that occurs in `cells`.

    The cells of a command have the different `times` in turn.
    """
    combinations: dict[Any, list[Cell]] = defaultdict(list)
    for each in cells:
        combinations[each.where, each.command, each.fault.name].append(each)
    return [found[number % len(found)] for number, found in enumerate(combinations.values())]


def pairwise(cells: Iterable[Cell]) -> list[Cell]:
    """Return a small subset of `cells` that contains every pair of properties (see `_pairs`) in `cells`."""
    chosen: list[Cell] = []
    covered: set[Any] = set()
    ordered = [(each, _pairs(each)) for each in cells]
    Random(0).shuffle(ordered)
    # Prefer EVENTS, because this stage lasts until all of its faults have occurred.
    ordered.sort(key=lambda each: each[0].stage is not Stage.EVENTS)
    # Select the cells with the most new pairs first. Each cell has ten pairs.
    for wanted in range(10, 0, -1):
        for each, pairs in ordered:
            if len(pairs - covered) >= wanted:
                chosen.append(each)
                covered |= pairs
    return chosen


def _pairs(cell: Cell) -> set[Any]:
    """Return the pairs of properties of a cell that `pairwise` must cover.

    A command is paired with the class of the fault, not with the single fault.
    """
    properties = {"stage": cell.stage, "on": cell.on, "kind": cell.kind, "times": cell.times}
    pairs = set(combinations(properties.items(), 2))
    pairs.add((("command", cell.command), ("kind", cell.kind)))
    pairs.add((("where", (*cell.where, cell.command)), ("any", None)))
    pairs.add((("fault", cell.fault.name), ("on", cell.on)))
    pairs.add((("fault", cell.fault.name), ("times", cell.times)))
    return pairs


# The number of faults on one cluster for which each stage has time, in flights between replica sets.
ROOM = {
    Stage.LISTING: 3,
    Stage.COPY: 2,
    Stage.INDEXES: 2,
    Stage.VERIFICATION: 5,
    Stage.EVENTS: 10,
    Stage.COMMIT: 6,
    Stage.REVERSE: 5,
}
# The number of faults of 20 seconds on one cluster in each stage: together, they must take less time than its deadline.
LONG_ROOM = {
    Stage.LISTING: 2,
    Stage.VERIFICATION: 3,
    Stage.EVENTS: 4,
    Stage.COMMIT: 4,
    Stage.REVERSE: 3,
}
# The number of faults on one cluster for which each stage has time, in flights between sharded clusters.
SHARD_ROOM = {Stage.COPY: 3, Stage.VERIFICATION: 6, Stage.EVENTS: 15}


def pack(
    cells: Iterable[Cell],
    room: Mapping[Stage, int] = ROOM,
    commands: Commands = COMMANDS,
) -> list[Flight]:
    """Divide the cells among as few flights as possible.

    `room` maps a stage to the maximum number of cells for each cluster in one flight, which is 1 for other stages.
    `commands` is the table from which the cells were made. If possible, the cells of one stage and cluster have
    different commands, in the order of the table. The reason: some stages send a command only once, so a second fault
    of the command would not occur.
    """
    waiting: dict[tuple[Stage, On], _Queues] = defaultdict(dict)
    for each in cells:
        waiting[each.where].setdefault(each.command, []).append(each)
    flights = []
    while any(waiting.values()):
        flight: list[Cell] = []
        for where, queues in waiting.items():
            flight += _take(queues, room.get(where[0], 1), commands[where])
        flights.append(tuple(flight))
    return flights


# The cells of a stage and cluster that are in no flight yet, by command.
_Queues = dict[str, list[Cell]]


def _take(queues: _Queues, number: int, commands: Sequence[str]) -> list[Cell]:
    """Remove at most `number` cells from `queues`, and return the removed cells in the order of `commands`.

    Cells of the commands with the longest queues are removed first, so that the last flights have different commands,
    too.
    """
    taken: list[Cell] = []
    while queues and len(taken) < number:
        longest = sorted(queues, key=lambda command: -len(queues[command]))
        for command in longest[: number - len(taken)]:
            taken.append(queues[command].pop(0))
            if not queues[command]:
                del queues[command]
    return sorted(taken, key=lambda each: commands.index(each.command))


def of_stage(flight: Sequence[Cell], stage: Stage, on: On) -> list[Cell]:
    return [each for each in flight if each.where == (stage, on)]
