"""Detects servers that have ended by themselves, so that no test waits for them forever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, Self, TypeVar

from syncsvc.sandbox.mongod import Mongod

K = TypeVar("K", bound=Hashable)

_INTERVAL = 0.5


class MongodDied(AssertionError):
    """Raised if a server has ended by itself, without an order of the test.

    This is an AssertionError, because a test that crashes a server must not be retried.
    """


class DeathWatch(Generic[K]):
    """Checks in a thread whether servers have died, that is, ended by themselves. A context manager.

    If a server has died, the thread kills the other servers of its cluster. Otherwise, a call could hang forever: an
    index build, for example, waits for all voting members. `clusters` returns the servers of each running cluster.
    """

    def __init__(self, clusters: Callable[[], Mapping[K, Iterable[Mongod]]]) -> None:
        self._clusters = clusters
        self._deaths: dict[K, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="death-watch")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def refuse_dead(self) -> None:
        """Raise MongodDied if a server has died; the error names the server and shows the last lines of its log."""
        if self._deaths:
            raise MongodDied("\n".join(self._deaths.values()))

    def forget(self) -> list[K]:
        """Forget all deaths. Return the clusters that have lost a server; all of their servers have been killed."""
        dead = [*self._deaths]
        self._deaths.clear()
        return dead

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL):
            for cluster, servers in self._clusters().items():
                deaths = [str(death) for death in (each.death() for each in servers) if death]
                if deaths:
                    self._deaths[cluster] = "\n".join(deaths)
                    for each in servers:
                        each.kill()
