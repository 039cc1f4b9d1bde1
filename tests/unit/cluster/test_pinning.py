"""A Pin sends commands to one server: the first command chooses a near server, and later commands go there or fail."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pymongo.errors import AutoReconnect
from pymongo.server_description import ServerDescription

from verifier.cluster.pinning import Pin, select


def server(port: int, milliseconds: float = 1.0) -> ServerDescription:
    return ServerDescription(("router", port), round_trip_time=milliseconds / 1000)


SERVERS = [server(1), server(2), server(3, milliseconds=200)]


def test_commands_without_a_pin_may_go_anywhere() -> None:
    assert select(SERVERS) == SERVERS


def test_all_commands_of_a_pin_go_to_one_server() -> None:
    pin = Pin()
    with pin.held():
        chosen = select(SERVERS)
    with ThreadPoolExecutor() as executor, pin.held():
        assert [select(SERVERS) for _ in range(20)] == [chosen] * 20
        assert executor.submit(select, SERVERS).result() == SERVERS, "a pin belongs to one thread"
    assert select(SERVERS) == SERVERS


def test_a_pin_is_handed_from_thread_to_thread() -> None:
    pin = Pin()

    def selected() -> list[ServerDescription]:
        with pin.held():
            return select(SERVERS)

    with ThreadPoolExecutor(max_workers=1) as executor:
        assert executor.submit(selected).result() == selected()


def test_pins_choose_among_all_near_servers() -> None:
    chosen: set[Any] = set()
    for _ in range(200):
        with Pin().held():
            chosen.update(each.address for each in select(SERVERS))
    assert chosen == {("router", 1), ("router", 2)}


def test_a_nested_pin_does_not_change_the_outer_pin() -> None:
    outer = Pin()
    with outer.held():
        chosen = select([SERVERS[0]])
        with Pin().held():
            assert select([SERVERS[1]]) == [SERVERS[1]]
        assert select(SERVERS) == chosen


def test_a_lost_server_is_an_immediate_error() -> None:
    with Pin().held():
        select([SERVERS[0]])
        with pytest.raises(AutoReconnect, match="router:1"):
            select(SERVERS[1:])
        assert select([]) == [], "the driver waits while no server is suitable"
