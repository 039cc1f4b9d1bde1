"""Runs several instances of the daemon for one sync: one for each shard of the source, or two for a replica set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from syncsvc.engine.run.points import Point
from tests.support.daemon import Daemon
from tests.support.pair import Pair


class Fleet:
    """All instances of one sync; the first one is the coordinator.

    Their IDs, `names`, are the names of the source's shards, or a and b if the source is a replica set.
    """

    def __init__(self, pair: Pair, folder: Path, *options: str) -> None:
        self._pair = pair
        shards = pair.source.client.config.shards.find(sort=[("_id", 1)])
        self.names = [str(each["_id"]) for each in shards] if pair.source.shards else ["a", "b"]
        self.daemons: list[Daemon] = []
        for name in self.names:
            (folder / name).mkdir()
            uris = pair.source.uri, pair.destination.uri
            given = ("--id", name, *options)
            self.daemons.append(
                Daemon(*uris, folder / name, *given, start_options=self._start_options)
            )

    def _start_options(self) -> dict[str, Any]:
        """Return the start options that these clusters and several instances require."""
        named = {} if self._pair.source.shards else {"instances": self.names}
        return {**self._pair.start_options(), **named}

    @property
    def coordinator(self) -> Daemon:
        return self.daemons[0]

    @property
    def follower(self) -> Daemon:
        return self.daemons[-1]

    def run(self) -> None:
        for each in self.daemons:
            each.run()

    def close(self) -> None:
        for each in self.daemons:
            each.close()

    def start(self, **options: Any) -> None:
        for each in self.daemons:
            each.start(**options)

    def wait_until_committable(self) -> None:
        for each in self.daemons:
            each.wait_until_committable()

    def commit(self) -> None:
        self.ask_for_commit()
        self.wait_for_state("COMMITTED")

    def ask_for_commit(self) -> None:
        for each in self.daemons:
            each.ask_for_commit()

    def reverse(self) -> None:
        for each in self.daemons:
            answer = each.post("reverse")
            assert answer.ok, answer.text
        self.wait_for_state("RUNNING")

    def wait_for_state(self, state: str) -> list[dict[str, Any]]:
        """Wait until all instances are in the state, and return the progress of each."""
        return [each.wait_for_state(state) for each in self.daemons]

    def wait_without_warnings(self) -> None:
        for each in self.daemons:
            each.wait_without_warning()


@contextmanager
def running_fleet(
    pair: Pair, folder: Path, *options: str, prepare: Callable[[Daemon], None] = lambda _: None
) -> Iterator[Fleet]:
    """Run the instances of a sync during the block; first call `prepare` with each of them."""
    fleet = Fleet(pair, folder, *options)
    for each in fleet.daemons:
        prepare(each)
    try:
        fleet.run()
        yield fleet
    finally:
        fleet.close()


def kill_at_each(daemon: Daemon, points: Iterable[Point], then: Callable[[], None]) -> None:
    """For each of these points in turn: restart the daemon, let it kill itself at the point, and start it again.

    `then` is called before the daemon has reached the point, and must make the daemon reach it.
    """
    for point in points:
        daemon.kill()
        daemon.kill_at(point)
        daemon.launch()
        then()
        daemon.wait_until_killed()
        daemon.run()
