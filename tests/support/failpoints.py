"""Causes faults with the fail points of servers: errors, closed connections and delays of single commands.

`FailPoints` arms a fault on every member, because another member can become primary; `failing` arms it on the primary
only. A server can have only one fault of the fail point `failCommand` at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from syncsvc import __version__
from syncsvc.sandbox import ReplicaSet

APPLICATION = f"syncsvc {__version__}"
Client = MongoClient[dict[str, Any]]
Document = Mapping[str, Any]

ALWAYS = "alwaysOn"


def times(number: int) -> Document:
    return {"times": number}


@dataclass(frozen=True)
class Fault:
    """A fault that a fail point of a server causes in a command.

    `point` is the name of the fail point, and `data` contains additional fields for it. If it is another fail point
    than failCommand, the fault affects the writes of all clients.
    """

    name: str
    data: Document = field(default_factory=dict, compare=False)
    point: str = "failCommand"

    def __str__(self) -> str:
        return self.name


def error(code: int, *labels: str) -> Fault:
    """Return a fault that makes the server refuse a command with this error code and these error labels."""
    return Fault(f"error {code}", {"errorCode": code, **_labels(labels)})


def write_concern_error(code: int) -> Fault:
    """Return a fault that makes the server run a command, but report a write concern error with this code."""
    what = {"code": code, "errmsg": "as the test wants it"}
    return Fault(f"write concern error {code}", {"writeConcernError": what})


def blocked(seconds: float) -> Fault:
    """Return a fault that makes the server wait before it runs a command, even if the client disconnects."""
    what = {"blockConnection": True, "blockTimeMS": round(seconds * 1000)}
    return Fault(f"blocked {seconds:g} s", what)


CLOSED = Fault("connection closed", {"closeConnection": True})


def _labels(labels: Iterable[str]) -> Document:
    return {"errorLabels": list(labels)} if labels else {}


@contextmanager
def failing(client: Client, data: Document, mode: Any = ALWAYS) -> Iterator[None]:
    """Arm failCommand on the primary during the block, with the fields `data`.

    `mode` is a mode of configureFailPoint, for example how many commands fail.
    """
    point = {"configureFailPoint": "failCommand"}
    client.admin.command({**point, "mode": mode, "data": dict(data)})
    try:
        yield
    finally:
        client.admin.command({**point, "mode": "off"})


@contextmanager
def holding(client: Client, point: str) -> Iterator[None]:
    """Arm a fail point of the primary that holds operations during the block, such as hangAfterSettingUpIndexBuild."""
    client.admin.command({"configureFailPoint": point, "mode": ALWAYS})
    try:
        yield
    finally:
        client.admin.command({"configureFailPoint": point, "mode": "off"})


def running(client: Client, command: str, application: str = APPLICATION) -> list[Document]:
    """Return the operations of the `application` with this command name that the primary has received and not ended."""
    wanted = {"appName": application, f"command.{command}": {"$exists": True}}
    return list(client.admin.aggregate([{"$currentOp": {}}, {"$match": wanted}]))


def running_for(client: Client, seconds: float, command: str) -> bool:
    """Return whether an operation of a daemon with this command name has been running for at least `seconds`."""
    found = running(client, command)
    return any(each.get("microsecs_running", 0) >= seconds * 1_000_000 for each in found)


def delayed(client: Client, command: str, application: str = APPLICATION) -> list[int]:
    """Return the IDs of operations that the primary has received, but that a fault keeps from running.

    Only operations of the `application` with this command name are returned.
    """
    found = running(client, command, application)
    return [each["opid"] for each in found if "microsecs_running" not in each]


class FailPoints:
    """The fail points on all members of some replica sets. Leaving the `with` block disarms failCommand.

    A fault of failCommand affects only connections with the application name `application`; if it is None, all
    connections.
    """

    def __init__(self, *sets: ReplicaSet, application: str | None = APPLICATION) -> None:
        members = [member.address for each in sets for member in each.members]
        self._clients: list[Client] = [
            MongoClient(each, directConnection=True, serverSelectionTimeoutMS=2000)
            for each in members
        ]
        self._application = application

    def __enter__(self) -> FailPoints:
        return self

    def __exit__(self, *error: object) -> None:
        self.disarm("failCommand")
        for each in self._clients:
            each.close()

    def arm(self, fault: Fault, commands: Iterable[str], mode: Any, **filters: Any) -> Armed:
        """Arm the fault for the commands with these names on all members.

        `mode` is a mode of configureFailPoint, and `filters` are additional fields of the fail point.
        """
        data: dict[str, Any] = {}
        if fault.point == "failCommand":
            data = {**fault.data, **filters, "failCommands": [*commands]}
            if self._application is not None:
                data["appName"] = self._application
        before = self._set(fault.point, mode, data)
        return Armed(self, fault, sum(before.values()))

    @contextmanager
    def armed(
        self, fault: Fault, commands: Iterable[str], mode: Any = ALWAYS, **filters: Any
    ) -> Iterator[Armed]:
        armed = self.arm(fault, commands, mode, **filters)
        try:
            yield armed
        finally:
            armed.end()

    def disarm(self, point: str) -> int:
        """Disarm the fail point named `point` on all members; return its number of hits since the servers started."""
        return sum(self._set(point, "off", {}).values())

    def entered(self, point: str) -> int:
        """Return the number of hits of the fail point named `point` since the servers started.

        A member that does not answer counts 0.
        """
        return sum(_entered(each, point) for each in self._clients)

    def _set(self, point: str, mode: Any, data: Document) -> dict[int, int]:
        found = {}
        for number, each in enumerate(self._clients):
            try:
                command = {"configureFailPoint": point, "mode": mode, "data": dict(data)}
                found[number] = int(each.admin.command(command).get("count", 0))
            except PyMongoError:
                # A member that is down has no fail points, and restarts without them.
                continue
        return found


@dataclass
class Armed:
    """A fault that is or was armed.

    `before` is the number of hits of the fail point before it was armed. `hits` is the number while it was armed;
    0 until `end` is called.
    """

    points: FailPoints
    fault: Fault
    before: int
    hits: int = 0

    def count(self) -> int:
        """Return the number of hits since the fault was armed."""
        return self.points.entered(self.fault.point) - self.before

    def has_struck(self) -> bool:
        return self.count() >= 1

    def end(self) -> int:
        self.hits = self.points.disarm(self.fault.point) - self.before
        return self.hits


def _entered(client: Client, point: str) -> int:
    try:
        reply = client.admin.command({"getParameter": 1, f"failpoint.{point}": 1})
        return int(reply[f"failpoint.{point}"].get("timesEntered", 0))
    except PyMongoError:
        return 0
