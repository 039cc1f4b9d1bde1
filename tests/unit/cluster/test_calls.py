"""Tests that each unanswered command is registered in `verifier.runtime.waits`, with its namespace and its server.

Also tests that the text of a lost connection names the command, and for which commands a long wait is expected.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from pymongo.errors import AutoReconnect, NetworkTimeout
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

from verifier.cluster import failures
from verifier.cluster.calls import CallListener, kept, newest
from verifier.runtime import waits
from verifier.runtime.errors import OperationError

ADDRESS = ("host", 27017)


def started(listener: CommandListener, command: dict[str, Any], request: int = 1) -> None:
    listener.started(CommandStartedEvent(command, "d", request, ADDRESS, request))


def succeeded(listener: CommandListener, name: str, request: int = 1) -> None:
    now = datetime.now() - datetime.now()
    event = CommandSucceededEvent(
        now, {"ok": 1}, name, request, ADDRESS, request, database_name="d"
    )
    listener.succeeded(event)


def failed(listener: CommandListener, name: str, request: int = 1) -> None:
    now = datetime.now() - datetime.now()
    event = CommandFailedEvent(now, {"ok": 0}, name, request, ADDRESS, request, database_name="d")
    listener.failed(event)


@pytest.fixture(autouse=True)
def all_waits_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "LONG", 0.0)


@pytest.mark.parametrize(
    "command, text",
    [
        ({"insert": "c"}, "insert of d.c at host:27017 (source)"),
        ({"getMore": 7, "collection": "c"}, "getMore of d.c at host:27017 (source)"),
        ({"dataSize": "b.c", "estimate": True}, "dataSize of b.c at host:27017 (source)"),
        (
            {"renameCollection": "b.c", "to": "b.e"},
            "renameCollection of b.c at host:27017 (source)",
        ),
        ({"shardCollection": "b.c.e"}, "shardCollection of b.c.e at host:27017 (source)"),
        ({"enableSharding": "b"}, "enableSharding of b at host:27017 (source)"),
        ({"listCollections": 1}, "listCollections of d at host:27017 (source)"),
        ({"aggregate": 1}, "aggregate of d at host:27017 (source)"),
    ],
)
def test_an_outstanding_command_is_a_wait(command: dict[str, Any], text: str) -> None:
    listener = CallListener("source")
    started(listener, command)
    (wait,) = waits.long_waits()
    assert wait.what == f"No answer yet to {text}"
    assert str(newest()) == text
    succeeded(listener, next(iter(command)))
    assert waits.long_waits() == ()


def test_a_failed_command_is_no_longer_a_wait() -> None:
    listener = CallListener("source")
    started(listener, {"insert": "c"}, 1)
    started(listener, {"createIndexes": "c"}, 2)
    failed(listener, "insert", 1)
    (wait,) = waits.long_waits()
    assert "createIndexes" in wait.what and "index build" in wait.remedy
    failed(listener, "createIndexes", 2)
    failed(listener, "createIndexes", 2)
    assert waits.long_waits() == ()


def test_the_newest_command_can_be_kept() -> None:
    listener = CallListener("source")
    started(listener, {"insert": "c"}, 1)
    with kept():
        started(listener, {"update": "e"}, 2)
    assert str(newest()) == "insert of d.c at host:27017 (source)"
    succeeded(listener, "insert", 1)
    succeeded(listener, "update", 2)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("host:27017: timed out", "insert of d.c at host:27017 (source): host:27017: timed out."),
        ("other:27017: refused", "other:27017: refused."),
    ],
)
def test_the_text_of_an_unreachable_cluster_names_the_command(text: str, expected: str) -> None:
    listener = CallListener("source")
    started(listener, {"insert": "c"}, 1)
    succeeded(listener, "insert", 1)
    with pytest.raises(OperationError) as raised, failures.named_errors():
        raise AutoReconnect(text)
    assert raised.value.kind.name == "ClusterUnreachable"
    assert raised.value.description == expected


@pytest.mark.parametrize(
    "command, expected, what",
    [
        ({"createIndexes": "c"}, True, "No answer yet to createIndexes of d.c at {}"),
        (
            {"collMod": "c", "index": {"name": "n", "unique": True}},
            True,
            "No answer yet to collMod of d.c at {}",
        ),
        (
            {"collMod": "c", "index": {"name": "n", "prepareUnique": True}},
            False,
            "collMod of d.c at {}: host:27017: timed out",
        ),
        ({"collMod": "c", "cappedMax": 1}, False, "collMod of d.c at {}: host:27017: timed out"),
        ({"insert": "c"}, False, "insert of d.c at {}: host:27017: timed out"),
    ],
)
def test_an_index_build_that_takes_long_is_expected(
    command: dict[str, Any], expected: bool, what: str
) -> None:
    listener = CallListener("source")
    started(listener, command)
    (outstanding,) = waits.long_waits()
    failed(listener, next(iter(command)))
    found = failures.temporary(NetworkTimeout("host:27017: timed out"))
    assert found is not None
    assert found.expected is outstanding.expected is expected
    assert found.what.removesuffix(".") == what.format("host:27017 (source)")
    assert ("index build takes" in found.remedy) is expected
    # A long index build explains neither a closed connection (the server may have been restarted) nor a timeout of
    # another server.
    for error in (AutoReconnect("host:27017: closed"), NetworkTimeout("other:27017: timed out")):
        found = failures.temporary(error)
        assert found is not None and not found.expected
