"""Tests a single server process: its port, its restart, and the error if it does not start."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from syncsvc.sandbox import SandboxError, find_mongod
from syncsvc.sandbox.mongod import Mongod, MongodOptions
from syncsvc.sandbox.reaper import keeper


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = keeper.make_folder(tmp_path)
    yield folder
    keeper.remove_folder(folder)


@pytest.fixture
def mongod(folder: Path) -> Iterator[Mongod]:
    mongod = Mongod(find_mongod(), folder / "data", MongodOptions("rs"))
    yield mongod
    mongod.close()


def listen_on(port: int) -> closing[socket.socket]:
    listener = socket.create_server(("127.0.0.1", port))
    return closing(listener)


def test_a_server_listens_on_its_port_until_killed(mongod: Mongod) -> None:
    mongod.start()
    mongod.wait_until_listening()
    socket.create_connection(("127.0.0.1", mongod.port)).close()
    assert mongod.pid is not None
    mongod.kill()
    assert mongod.pid is None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", mongod.port))


def test_a_first_start_uses_another_port_if_its_port_is_taken(mongod: Mongod) -> None:
    taken = mongod.port
    with listen_on(taken):
        mongod.start()
        mongod.wait_until_listening()
    assert mongod.port != taken


def test_a_restart_keeps_its_port_and_fails_if_it_is_taken(mongod: Mongod) -> None:
    mongod.start()
    mongod.wait_until_listening()
    port = mongod.port
    mongod.restart()
    assert mongod.port == port
    mongod.kill()
    with listen_on(port), pytest.raises(SandboxError, match="(?s)code 48.*Address already in use"):
        mongod.restart()


def test_a_failed_start_quotes_the_log(folder: Path) -> None:
    options = MongodOptions("rs", parameters={"nonsense": "1"})
    mongod = Mongod(find_mongod(), folder / "data", options)
    mongod.start()
    with pytest.raises(SandboxError, match="(?s)exit code 1.*Unknown --setParameter 'nonsense'"):
        mongod.wait_until_listening()
    mongod.close()
