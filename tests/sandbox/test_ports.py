"""Tests the reservation of ports: no other program can reserve a port until it is released or its process ends.

A server can listen on a reserved port, and it is an error if no port is free.
"""

import socket
import subprocess
import sys
from contextlib import closing

import pytest

from syncsvc.sandbox import SandboxError, ports
from syncsvc.sandbox.ports import HOST, Port, reserve_port
from tests.support.service_process import ROOT
from tests.support.waiting import PATIENCE

_RESERVE = """
import sys
from syncsvc.sandbox.ports import Port
port = Port(int(sys.argv[1]))
"""


def _another_program_reserves(number: int) -> bool:
    command = [sys.executable, "-c", _RESERVE, str(number)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 or "Address already in use" in done.stderr
    return done.returncode == 0


def test_another_program_cannot_reserve_a_port_until_it_is_released() -> None:
    port = reserve_port()
    assert not _another_program_reserves(port.number)
    port.release()
    assert _another_program_reserves(port.number)


def test_a_reservation_ends_with_its_process() -> None:
    port = reserve_port()
    port.release()
    code = f"{_RESERVE}import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    killed = subprocess.run([sys.executable, "-c", code, str(port.number)], cwd=ROOT)
    assert killed.returncode == -9
    assert _another_program_reserves(port.number)


def test_a_server_can_listen_on_a_reserved_port() -> None:
    port = reserve_port()
    with closing(socket.create_server((HOST, port.number))):
        port.release()
        with pytest.raises(OSError):
            Port(port.number)


def test_no_free_port_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    port = reserve_port()
    monkeypatch.setattr(ports, "_PORTS", range(port.number, port.number + 1))
    with pytest.raises(SandboxError, match="No free port was found on 127.0.0.1"):
        reserve_port()
    port.release()
    again = reserve_port()
    assert again.number == port.number
    again.release()
