"""Tests that a sandbox leaves no process and no file behind, even if it is killed or its block fails.

The last test checks the error text of `python -m syncsvc.sandbox`.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.replica_set import Client
from tests.sandbox.processes import (
    children,
    command_of,
    is_running,
    python,
    read_line,
    wait_until_gone,
)
from tests.support.waiting import wait_for

START = "from syncsvc.sandbox import ReplicaSet; r = ReplicaSet(); r.start();"
START_SHARDED = "from tests.support.sharded.cluster import ShardedCluster; r = ShardedCluster(shards=1); r.start();"
WAIT = "print('started', flush=True); input()"


def test_importing_starts_nothing(tmp_path: Path) -> None:
    with python(["-c", f"import syncsvc.sandbox; {WAIT}"], tmp_path) as owner:
        assert read_line(owner) == "started"
        assert not children(owner.pid)
        assert not any(tmp_path.iterdir())


def _press_enter(owner: subprocess.Popen[str]) -> None:
    assert owner.stdin is not None
    owner.stdin.write("\n")
    owner.stdin.flush()


@pytest.mark.in_turns
@pytest.mark.parametrize("reaper_dies", [False, True])
def test_a_stop_leaves_nothing(tmp_path: Path, reaper_dies: bool) -> None:
    # Use a separate process, because all sandboxes of one process share a reaper.
    with python(["-c", f"{START} {WAIT}; r.stop(); {WAIT}"], tmp_path) as owner:
        assert read_line(owner) == "started"
        mongod, reaper = sorted(children(owner.pid), key=command_of, reverse=True)
        assert "mongod --dbpath" in command_of(mongod)
        assert "reaper.py" in command_of(reaper)
        if reaper_dies:
            os.kill(reaper, signal.SIGKILL)
        _press_enter(owner)
        assert read_line(owner) == "started"
        assert not children(owner.pid)
        assert not any(tmp_path.iterdir())


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    before = children(os.getpid())
    with pytest.raises(ZeroDivisionError), ReplicaSet(folder=tmp_path):
        1 / 0
    assert children(os.getpid()) == before
    assert not any(tmp_path.iterdir())


def test_a_program_that_ends_without_a_stop_leaves_nothing(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", f"{START} print(r.members[0].pid)"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.stderr == ""
    wait_until_gone({int(run.stdout)}, tmp_path)


# The child processes are one member, for a sharded cluster also two routers and a config server, and the reaper.
@pytest.mark.in_turns
@pytest.mark.parametrize("start, number", [(START, 2), (START_SHARDED, 5)])
def test_sigkill_of_the_owner_leaves_nothing(tmp_path: Path, start: str, number: int) -> None:
    with python(["-c", f"{start} {WAIT}"], tmp_path) as owner:
        assert read_line(owner) == "started"
        started = children(owner.pid)
        assert len(started) == number
        owner.kill()
        wait_until_gone(started, tmp_path)


def test_sigkill_of_a_starting_owner_leaves_nothing(tmp_path: Path) -> None:
    with python(["-c", START], tmp_path) as owner:
        wait_for(lambda: any(tmp_path.iterdir()), "a data folder")
        started = children(owner.pid)
        owner.kill()
        wait_until_gone(started, tmp_path)


def test_sigkill_of_an_owner_with_a_forked_child_leaves_nothing(tmp_path: Path) -> None:
    """Kill the process that owns a sandbox, while its forked child lives: all servers and files must be removed.

    The child inherits the open files of the owner, including the pipe to the reaper.
    """
    forked = f"{START} import os; child = os.fork() or input(); print(child, flush=True); input()"
    with python(["-c", forked], tmp_path) as owner:
        child = int(read_line(owner))
        started = children(owner.pid) - {child}
        owner.kill()
        wait_until_gone(started, tmp_path)
        assert is_running(child)


def test_a_forked_child_does_not_stop_its_parents_servers(tmp_path: Path) -> None:
    with ReplicaSet(folder=tmp_path) as replica_set:
        child = os.fork()
        if not child:
            replica_set.stop()
            os._exit(0)
        assert os.waitpid(child, 0) == (child, 0)
        with replica_set.client() as client:
            client.test.items.insert_one({})


@pytest.mark.in_turns
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_of_the_command_leaves_nothing(tmp_path: Path, sent: signal.Signals) -> None:
    with python(["-m", "syncsvc.sandbox", "--accessControl"], tmp_path) as command:
        uris = [read_line(command).partition(": ")[2] for _ in range(2)]
        for uri in uris:
            with Client(uri) as client:
                client.test.items.insert_one({})
        started = children(command.pid)
        assert len(started) == 3
        # Signal the whole process group, as a terminal does.
        os.killpg(command.pid, sent)
        assert command.wait(120) == 0
        wait_until_gone(started, tmp_path)


def test_the_command_reports_errors_in_words(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "syncsvc.sandbox"],
        env=os.environ | {"SYNCSVC_MONGOD": str(tmp_path / "missing")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 1
    assert run.stdout == ""
    assert run.stderr.startswith("SYNCSVC_MONGOD is set to")
