"""An application that writes throughout a migration, and goes to the other cluster when it is told to."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

from pymongo.errors import WriteError

from tests.conftest import Pair
from tests.support.daemon import Daemon
from tests.support.waiting import wait_for
from verifier.cluster.failures import USER_WRITES_BLOCKED


class Application:
    """Within the block, inserts one document after the other; `acknowledged` are the ids of those that were taken."""

    def __init__(self, pair: Pair, daemon: Daemon) -> None:
        self.acknowledged: list[int] = []
        self._clients = {"cluster0": pair.source.client, "cluster1": pair.destination.client}
        self._daemon = daemon
        self._there = "cluster0"
        self._end = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def goes_on(self) -> None:
        """Wait until more was written, where the application writes now."""
        before = len(self.acknowledged)
        wait_for(lambda: self._error or len(self.acknowledged) > before + 20, "more is written")

    def _run(self) -> None:
        try:
            number = 0
            while not self._end.is_set():
                number += 1
                self._insert({"_id": number, "unique": number})
                self.acknowledged.append(number)
        except BaseException as error:  # shown by the test, whatever it is
            self._error = error

    def _insert(self, document: dict[str, Any]) -> None:
        while not self._end.is_set():
            try:
                self._clients[self._there].app.log.insert_one(document)
                return
            except WriteError as error:
                if error.code != USER_WRITES_BLOCKED:
                    raise
            self._follow()

    def _follow(self) -> None:
        """Its writes are refused: it goes where it may write."""
        progress = wait_for(self._writable, "canWrite", 120)
        self._there = progress["directionMapping"]["Destination"].partition(":")[0]

    def _writable(self) -> dict[str, Any] | None:
        progress = self._daemon.progress()
        return progress if progress["canWrite"] or self._end.is_set() else None
