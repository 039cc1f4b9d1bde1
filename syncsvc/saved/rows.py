"""Saves, reads and deletes the rows of one metadata collection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bson.timestamp import Timestamp

from syncsvc.metadata import Metadata
from syncsvc.saved.batches import batches
from verifier.cluster import rawbson
from verifier.cluster.newest import aggregate_after, newest_time, read_after
from verifier.cluster.reading import read
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken


@dataclass(frozen=True)
class Rows:
    """The rows of the collection `name` of the metadata database. `writer` writes to the cluster of `metadata`.

    Every method raises the driver's errors, and `Cancelled`. All methods except `at` run commands of the writer: they
    also raise the other errors of the writer, and RuntimeError if the server refuses a write.
    """

    metadata: Metadata
    writer: ClusterWriter
    name: str
    stop: StopToken

    def run(self, command: dict[str, Any]) -> dict[str, Any]:
        """Run a command that writes to the collection, and return the reply."""
        reply = self.writer.run(self.metadata.name, command)
        self._refuse_errors(reply)
        return reply

    def run_timed(self, command: dict[str, Any]) -> tuple[dict[str, Any], Timestamp]:
        """Run a command like `run`; return the reply, and a cluster time that is not before its writes."""
        reply, time = self.writer.run_timed(self.metadata.name, command)
        self._refuse_errors(reply)
        return reply, time

    def save(self, statements: Iterable[dict[str, Any]]) -> Timestamp | None:
        """Run these update statements.

        Return a cluster time that is not before any of these updates; None if `statements` is empty.
        """
        time: Timestamp | None = None
        for batch in batches(statements):
            _, time = self.run_timed({"update": self.name, "updates": batch})
        return time

    def newest_time(self) -> Timestamp:
        """Return a cluster time at or after every write acknowledged before this call."""
        return read(self._newest_time, self.stop)

    def at(self, time: Timestamp, **find: Any) -> list[bytes]:
        """Return the rows as BSON, including all writes up to `time`.

        `find` contains further fields of the find command, such as `filter`.
        """
        return read(lambda: self._after(time, find), self.stop)

    def newest(self, **find: Any) -> list[bytes]:
        """Return the rows as BSON, including all writes acknowledged before this call. `find` is as for `at`."""
        return read(lambda: self._after(self._newest_time(), find), self.stop)

    def aggregate(self, pipeline: list[dict[str, Any]]) -> list[bytes]:
        """Return the results of an aggregation as BSON, including all writes acknowledged before this call."""

        def results() -> list[bytes]:
            client, database = self.metadata.client, self.metadata.name
            return aggregate_after(self._newest_time(), client, database, self.name, pipeline)

        return read(results, self.stop)

    def delete(self, ids: Iterable[Any]) -> None:
        """Delete the rows with these `_id`s."""
        # Each statement deletes one document, because a delete statement for several documents accepts no `txnNumber`,
        # by which servers refuse late writes.
        for batch in batches({"q": {"_id": each}, "limit": 1} for each in ids):
            self.run({"delete": self.name, "deletes": batch})

    def delete_all(self, query: dict[str, Any]) -> None:
        """Delete all rows that match `query`."""
        found = self.newest(filter=query, projection={"_id": 1})
        self.delete(rawbson.decode(each)["_id"] for each in found)

    def _newest_time(self) -> Timestamp:
        return newest_time(self.run, self.name)

    def _after(self, time: Timestamp, find: dict[str, Any]) -> list[bytes]:
        return read_after(time, self.metadata.client, self.metadata.name, self.name, **find)

    def _refuse_errors(self, reply: dict[str, Any]) -> None:
        if reply.get("writeErrors"):
            raise RuntimeError(
                f"the server refused to change the collection {self.name} of the sync's metadata: "
                f"{reply['writeErrors'][:3]}"
            )
