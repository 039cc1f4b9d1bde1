"""Tests the daemon as its operator sees it: options, messages, exit statuses, log lines, metrics.

While it connects to the clusters, it must answer requests, and commands must wait.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import requests

from syncsvc import __version__
from syncsvc.engine.run.points import Point
from syncsvc.sandbox import find_mongod
from syncsvc.sandbox.mongod import Mongod, MongodOptions
from syncsvc.state import State
from tests.integration.test_bad_input import assert_refused
from tests.support.daemon import Daemon
from tests.support.metrics import scrape
from tests.support.pair import Pair
from tests.support.service_process import ROOT, free_port
from tests.support.waiting import PATIENCE, wait_for

DEAD = "mongodb://user:secret@127.0.0.1:1/?serverSelectionTimeoutMS=200"


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Mongod]:
    server = Mongod(find_mongod(), tmp_path / "standalone", MongodOptions(None))
    server.start()
    try:
        server.wait_until_listening()
        yield server
    finally:
        server.close()


# Any free port, because another test process may use the default one.
ANY_PORT = ("--port", "0")


def run(*options: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "syncsvc", *options]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT, env=env
    )


def test_the_version_is_printed() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"syncsvc {__version__}\n")


@pytest.mark.in_turns(2)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--cluster0"),
        (["--cluster0", DEAD], "--cluster1"),
        (["--cluster0", DEAD, "--cluster1", DEAD, "--port", "many"], "port"),
        (["--cluster0", DEAD, "--cluster1", DEAD, "--loadLevel", "5"], "loadLevel"),
        (["--cluster0", DEAD, "--cluster1", DEAD, "--unknown", DEAD], "--unknown"),
        (["--cluster0", DEAD, "--cluster1", DEAD, "--config", "/nowhere.yaml"], "/nowhere.yaml"),
    ],
)
def test_invalid_options_are_reported_by_name(options: list[str], said: str) -> None:
    done = run(*options)
    assert done.returncode == 2
    assert said in done.stderr
    assert "secret" not in done.stderr + done.stdout


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("uri", "said"),
    [
        (DEAD, "ClusterUnreachable"),
        ("mongodb://127.0.0.1/?w=1", "write concern must be majority"),
        ("mongodb://127.0.0.1/?readConcernLevel=local", "read concern must be majority"),
        ("mongodb://127.0.0.1/?readPreference=secondary", "read preference must be primary"),
        ("nonsense", "mongodb://"),
    ],
)
def test_bad_clusters_end_the_process(replica_sets: Pair, uri: str, said: str) -> None:
    done = run("--cluster0", uri, "--cluster1", replica_sets.destination.uri, *ANY_PORT)
    assert done.returncode == 1
    assert said in done.stderr and "cluster0" in done.stderr
    assert "secret" not in done.stderr + done.stdout


def test_a_standalone_server_is_refused(replica_sets: Pair, standalone: Mongod) -> None:
    uri = f"mongodb://{standalone.address}/"
    done = run("--cluster0", uri, "--cluster1", replica_sets.destination.uri, *ANY_PORT)
    assert done.returncode == 1
    assert "standalone" in done.stderr


def test_a_port_in_use_is_reported(pair: Pair, daemon: Daemon) -> None:
    port = str(daemon.port)
    done = run("--cluster0", pair.source.uri, "--cluster1", pair.destination.uri, "--port", port)
    assert done.returncode == 1
    assert port in done.stderr


def test_options_come_from_a_file_and_the_environment(pair: Pair, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"cluster0: {pair.source.uri}\ncluster1: nonsense\nport: {free_port()}\n")
    done = run("--config", str(file), env={"SYNCSVC_CLUSTER1": DEAD, "PATH": ""})
    assert done.returncode == 1
    assert "cluster1" in done.stderr and "127.0.0.1:1" in done.stderr


def test_an_unknown_key_in_the_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"cluster0: {DEAD}\ncluster1: {DEAD}\nclustr2: {DEAD}\n")
    done = run("--config", str(file))
    assert done.returncode == 2
    assert "clustr2" in done.stderr
    assert "secret" not in done.stderr


COMMANDS = {
    "start": {"source": "cluster0", "destination": "cluster1"},
    "pause": {},
    "resume": {},
    "commit": {},
    "reverse": {},
}


@contextmanager
def still_connecting(daemon: Daemon) -> Iterator[None]:
    """Start the daemon, and hold it during the block at the point after it has connected to the clusters.

    Meanwhile, the daemon answers requests, but its startup is not complete.
    """
    with daemon.held_at(Point.CONNECTED):
        daemon.launch()
        daemon.wait_until_reached(Point.CONNECTED)
        wait_for(daemon.answers, "an answer")
        yield


@contextmanager
def sent(daemon: Daemon, *commands: str) -> Iterator[list[Future[requests.Response]]]:
    """Send commands at the same time, and wait until the daemon has received all of them.

    Yield the futures of the answers.
    """
    before = daemon.log.count('"Received request"')
    with ThreadPoolExecutor(len(commands)) as threads:
        answers = [
            threads.submit(requests.post, daemon.url(each), json=COMMANDS[each], timeout=PATIENCE)
            for each in commands
        ]
        # Reading the log sends no request.
        received = before + len(commands)
        wait_for(lambda: daemon.log.count('"Received request"') >= received, "all are received")
        yield answers


def test_a_process_answers_while_it_connects(pair: Pair, daemon: Daemon) -> None:
    pair.source.client.d.c.insert_one({"_id": 1})
    daemon.start()
    daemon.wait_until_committable()
    daemon.kill()
    with still_connecting(daemon), sent(daemon, *COMMANDS, *COMMANDS) as answers:
        assert daemon.progress()["state"] == "INITIALIZING"
        assert scrape(daemon)["mongosync_state"][("INITIALIZING",)] == 1
        assert not any(each.done() for each in answers), "commands wait"
        daemon.ask_to_end()
        for each in answers:
            assert_refused(each.result(), 409, "InvalidState", ("INITIALIZING", "is stopping"))
    assert daemon.wait_until_ended(60) == 0


def test_a_command_waits_until_the_process_is_connected(pair: Pair, daemon: Daemon) -> None:
    pair.source.client.d.c.insert_one({"_id": 1})
    daemon.start()
    daemon.wait_until_committable()
    daemon.kill()
    with ExitStack() as connecting:
        connecting.enter_context(still_connecting(daemon))
        with sent(daemon, "pause") as (answer,):
            assert daemon.progress()["state"] == "INITIALIZING"
            connecting.close()
            assert answer.result().json() == {"success": True}
    assert daemon.progress()["state"] == "PAUSED"
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


def test_a_command_waits_for_the_connection_only_for_a_limited_time(
    pair: Pair, daemon: Daemon
) -> None:
    daemon.kill()
    (daemon.folder / "wait-briefly").touch()
    with still_connecting(daemon):
        for command, body in COMMANDS.items():
            refused = daemon.post(command, body)
            assert_refused(refused, 409, "InvalidState", ("INITIALIZING", "saved sync"))


def test_the_api_listens_on_localhost_only(daemon: Daemon) -> None:
    listening = Path("/proc/net/tcp").read_text().splitlines()[1:]
    addresses = {line.split()[1] for line in listening if line.split()[3] == "0A"}
    port = f"{daemon.port:04X}"
    assert {each for each in addresses if each.endswith(f":{port}")} == {f"0100007F:{port}"}


def test_metrics_can_be_read(pair: Pair, daemon: Daemon) -> None:
    idle = {(each.value,): float(each is State.IDLE) for each in State}
    assert scrape(daemon)["mongosync_state"] == idle
    pair.source.client.d.c.insert_many([{"_id": number} for number in range(10)])
    daemon.start()
    daemon.commit()
    shown = scrape(daemon)
    assert shown["mongosync_state"][("COMMITTED",)] == 1
    assert shown["mongosync_sync_phase"][("commit completed",)] == 1
    assert shown["mongosync_can_write"] == {(): 1}
    assert shown["mongosync_copied_documents"] == {(): 10}
    assert shown["mongosync_lag_seconds"] == {(): 0}


def test_log_lines_are_json_objects(pair: Pair, daemon: Daemon) -> None:
    pair.source.client.d.c.insert_one({"_id": 1})
    daemon.start()
    daemon.commit()
    assert daemon.terminate() == 0
    lines = [json.loads(line) for line in daemon.log.splitlines()]
    assert all({"time", "level", "message"} <= set(line) for line in lines)
    assert {
        "Version info",
        "The sync was started, or was loaded from its saved state.",
        "The sync is committed.",
        "Stopped.",
    } <= {line["message"] for line in lines}


def test_a_signal_rotates_the_log(pair: Pair, daemon: Daemon) -> None:
    pair.source.client.d.c.insert_one({"_id": 1})
    folder = daemon.folder / "log"
    assert {each.name for each in folder.iterdir()} == {"audit.log", "syncsvc.log"}
    os.kill(daemon.pid, signal.SIGUSR1)
    # The log is rotated before the first line after the signal, and each request writes a line.
    wait_for(lambda: daemon.progress() and len(list(folder.glob("syncsvc*"))) == 2, "it is rotated")
    daemon.start()
    wait_for(
        lambda: '"The sync was started, or was loaded from its saved state."' in daemon.log,
        "the start is logged",
    )
    old, new = sorted(folder.glob("syncsvc*"))
    assert (
        '"Serving."' in old.read_text()
        and '"The sync was started, or was loaded from its saved state."' not in old.read_text()
    )
    assert (
        '"The sync was started, or was loaded from its saved state."' in new.read_text()
        and '"Serving."' not in new.read_text()
    )
    assert [each.stat().st_mode & 0o777 for each in (folder, old, new)] == [0o700, 0o600, 0o600]
