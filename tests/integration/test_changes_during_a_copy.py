"""Changes collections while they are being copied. One sync includes all cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum

import pytest

from syncsvc.engine.run.points import Point
from syncsvc.sandbox.equality import differences_by_database
from tests.support.behaviours.behaviour import AnyDatabase, beside, use
from tests.support.daemon import Daemon
from tests.support.pair import Pair, started_pair
from tests.support.waiting import wait_for

Change = Callable[[AnyDatabase], object]


class Moment(Enum):
    """A point at which the copy of a collection is held, and whether this collection is capped.

    The copy of a capped collection reads its next page only after it has written the previous page.
    """

    READ_IN_PART = (Point.BATCH_WRITTEN, True)
    NOT_ACKNOWLEDGED = (Point.BATCH_WRITTEN, False)
    COPIED = (Point.COLLECTION_COPIED, False)

    @property
    def point(self) -> Point:
        return self.value[0]

    def fill(self, db: AnyDatabase) -> None:
        """Create a collection `c` that is larger than one page of the copy."""
        if self.value[1]:
            db.create_collection("c", capped=True, size=16 << 20)
        db.c.create_index("n", unique=True)
        db.c.insert_many({"_id": n, "n": n, "pad": "p" * 500} for n in range(1500))


def rename(db: AnyDatabase) -> None:
    db.c.rename("d")
    use(db.d, "after")


def rename_and_create_again(db: AnyDatabase) -> None:
    db.c.rename("d")
    use(db.c, "new")
    use(db.d, "old")


def rename_there_and_back(db: AnyDatabase) -> None:
    db.c.rename("d")
    use(db.d, "away")
    db.d.rename("c")
    use(db.c, "home")


def rename_across_databases(db: AnyDatabase) -> None:
    names = {"renameCollection": f"{db.name}.c", "to": f"{beside(db).name}.d"}
    db.client.admin.command(names)
    use(beside(db).d, "after")


def rename_over_it(db: AnyDatabase) -> None:
    use(db.d, "new")
    db.d.rename("c", dropTarget=True)
    use(db.c, "after")


def drop(db: AnyDatabase) -> None:
    db.drop_collection("c")


def drop_and_create_again(db: AnyDatabase) -> None:
    db.drop_collection("c")
    use(db.c, "after")


def drop_the_database(db: AnyDatabase) -> None:
    db.client.drop_database(db.name)
    use(db.d, "after")


def convert_to_capped(db: AnyDatabase) -> None:
    db.command({"convertToCapped": "c", "size": 1 << 20})
    use(db.c, "after")


def modify(db: AnyDatabase) -> None:
    db.command({"collMod": "c", "validator": {"n": 1}, "validationAction": "warn"})
    db.c.drop_index("n_1")
    use(db.c, "after")


CHANGES: tuple[Change, ...] = (
    *(rename, rename_and_create_again, rename_there_and_back, rename_across_databases),
    *(rename_over_it, drop, drop_and_create_again, drop_the_database, convert_to_capped, modify),
)


@dataclass(frozen=True)
class Case:
    change: Change
    moment: Moment

    @property
    def database(self) -> str:
        return f"{self.change.__name__}_{self.moment.name}".lower()

    @property
    def place(self) -> tuple[Point, str]:
        return self.moment.point, f"{self.database}.c"


CASES = [Case(change, moment) for moment in Moment for change in CHANGES]


def _change_each_in_its_copy(pair: Pair, daemon: Daemon) -> None:
    """Change each collection while its copy is held, in the order in which the daemon copies them."""
    source = pair.source.client
    with ExitStack() as orders:
        held = {case: orders.enter_context(ExitStack()) for case in CASES}
        for case, hold in held.items():
            hold.enter_context(daemon.held_at(*case.place))
        daemon.start()
        while held:
            case = wait_for(lambda: _reached(daemon, held), "one of the copies is held")
            case.change(source[case.database])
            held.pop(case).close()


def _reached(daemon: Daemon, held: Mapping[Case, ExitStack]) -> Case | None:
    assert daemon.progress()["state"] == "RUNNING"
    return next((case for case in held if daemon.has_reached(*case.place)), None)


@pytest.fixture(scope="module")
def differences(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, ...]]:
    """Run a sync with all cases, and return the differences between the clusters, by database."""
    with started_pair() as pair:
        with pair.daemon(tmp_path_factory.mktemp("copies")).running() as daemon:
            for case in CASES:
                case.moment.fill(pair.source.client[case.database])
            _change_each_in_its_copy(pair, daemon)
            daemon.commit()
        return differences_by_database(pair.source.client, pair.destination.client)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.database)
def test_changes_during_the_copy_are_synced(
    differences: dict[str, tuple[str, ...]], case: Case
) -> None:
    own = (case.database, f"{case.database}_other")
    assert not {name: found for name, found in differences.items() if name in own}
