"""Runs `syncctl` as a process, for a reversible sync from the preflight to the second commit.

Other tests run further commands at a terminal, and the commands for the verifier.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

from syncsvc.ctl.exits import Exit
from tests.support.daemon import Daemon
from tests.support.pair import Pair
from tests.support.service_process import ROOT, ServiceProcess
from tests.support.verifier import Verifier
from tests.support.waiting import PATIENCE, wait_for

START = """
source: cluster0
destination: cluster1
reversible: true
enableUserWriteBlocking: sourceAndDestination
"""


class Operator:
    """Runs `syncctl` for a daemon or a verifier, with and without a terminal."""

    def __init__(self, process: ServiceProcess, folder: Path) -> None:
        self._folder = folder
        self._program = [sys.executable, "-m", "syncsvc.ctl"]
        # A size in the environment, as pytest-xdist sets it, would have precedence over that of the terminal.
        inherited = {n: v for n, v in os.environ.items() if n not in ("COLUMNS", "LINES")}
        self._environment = {
            **inherited,
            "SYNCCTL_URL": f"http://127.0.0.1:{process.port}",
            "SYNCCTL_VERIFIER_URL": f"http://127.0.0.1:{process.port}",
            "TERM": "xterm",
        }

    def run(self, *arguments: str, status: Exit = Exit.OK) -> str:
        """Run a command without a terminal; return its output, and fail unless its exit status is `status`."""
        done = subprocess.run(
            [*self._program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=self._environment,
            timeout=PATIENCE,
        )
        assert done.returncode == status, (arguments, done.stdout, done.stderr)
        assert "\x1b" not in done.stdout + done.stderr
        return done.stdout + done.stderr

    def begin(self, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
        """Start a command without a terminal; return the process, and the file to which its output is written."""
        output = self._folder / "output-of-syncctl"
        with output.open("wb") as file:
            command = [*self._program, *arguments]
            process = subprocess.Popen(command, stdout=file, cwd=ROOT, env=self._environment)
        return process, output

    def run_at_terminal(self, *arguments: str, typed: str = "", status: Exit = Exit.OK) -> str:
        """Run a command at a terminal, and type the text `typed` there; return the text that the terminal shows.

        Fail unless the exit status of the command is `status`.
        """
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        command = [*self._program, *arguments]
        with subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=self._environment
        ) as process:
            os.close(theirs)
            os.write(ours, typed.encode())
            shown = b"".join(iter(lambda: _read(ours), b""))
            assert process.wait(PATIENCE) == status, shown.decode()
        os.close(ours)
        return shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the process has closed the terminal
        return b""


def test_an_operator_runs_a_reversible_sync(pair: Pair, daemon: Daemon, tmp_path: Path) -> None:
    operator = Operator(daemon, tmp_path)
    orders = pair.source.client.shop.orders
    orders.insert_many({"_id": number, "n": number} for number in range(1_000))
    file = tmp_path / "start.yaml"
    file.write_text(f"{START}copyInNaturalOrders: []\nbuildIndexes: sometimes\n")

    shown = operator.run("start", "-f", str(file), status=Exit.USAGE)
    assert "copyInNaturalOrders: Unknown field" in shown and "buildIndexes: Must be one of" in shown
    assert "IDLE" in operator.run("status")
    file.write_text(START)
    assert "A start would succeed." in operator.run("preflight", "-f", str(file))
    assert "permit a start" in operator.run("doctor", "-f", str(file))
    operator.run("start", "-f", str(file))
    shown = operator.run_at_terminal("watch", "--until", "canCommit")
    assert "Ctrl-C ends only this command." in shown and "100 %" in shown and "\x1b[" in shown
    assert re.search(r"Next.*syncctl commit --wait", shown)

    examine_running(operator, tmp_path)
    watch_across_a_restart(operator, daemon)
    shown = operator.run_at_terminal("commit", "--wait", typed="cluster0\n", status=Exit.FAILED)
    assert "Type cluster1 to confirm" in shown and "nothing was sent" in shown
    assert "The number of synced collections is 1." in shown
    assert daemon.progress()["state"] == "RUNNING"
    shown = operator.run_at_terminal("commit", "--wait", typed="cluster1\n")
    assert "COMMITTED" in shown and "applications may write to the destination" in shown
    pair.assert_equal()

    pair.destination.client.shop.orders.insert_one({"_id": "of the destination"})
    operator.run("reverse")
    assert "commit: possible" in operator.run("watch", "--until", "canCommit")
    shown = operator.run("commit", "--wait", "--yes", "--max-lag", "30")
    assert re.search(r"^\S+ \S+  COMMITTED", shown, re.M)
    assert orders.find_one({"_id": "of the destination"})
    pair.assert_equal()
    pair.destination.client.admin.command({"setUserWriteBlockMode": 1, "global": False})


def test_the_other_commands_at_a_terminal(pair: Pair, daemon: Daemon, tmp_path: Path) -> None:
    operator = Operator(daemon, tmp_path)
    shows = operator.run_at_terminal
    pair.source.client.shop.orders.insert_many({"_id": number} for number in range(100))
    assert "A start would succeed." in shows("preflight")
    assert "permit a start" in shows("doctor")
    assert "syncctl watch" in shows("start")
    daemon.wait_until_committable()
    assert "RUNNING" in shows("status")
    assert "shop.orders" in shows("namespaces")
    assert "No differences" in shows("mismatches")
    assert "Differences in documents: 0;" in shows("repair", "--dry-run")
    assert "500" in shows("limit", "--copy-documents", "500")
    assert "paused" in shows("pause").lower()
    assert "Next: " in shows("resume")
    assert "InvalidState" in shows("reverse", status=Exit.FAILED)
    assert "usersAndRoles" in shows("users", status=Exit.FAILED)
    assert "usersAndRoles" in shows("users", "--copy", status=Exit.FAILED)
    for command in ("report", "diagnose"):
        target = tmp_path / command
        assert str(target) in shows(command, "-o", str(target)).replace("\r\n", "")
        assert target.stat().st_size
    assert "complete" in shows("completion", "bash")
    assert "nothing was sent" in shows("reset", typed="cluster0\n", status=Exit.FAILED)
    assert "syncctl watch --until idle" in shows("reset", typed="cluster1\n")
    daemon.wait_for_state("IDLE")
    assert "shop" not in pair.destination.client.list_database_names()


def test_the_commands_of_the_verifier(pair: Pair, tmp_path: Path) -> None:
    pair.source.client.shop.orders.insert_one({"_id": 1})
    uris = pair.source.uri, pair.destination.uri
    with Verifier(*uris, tmp_path, "--verifyAll", "--graceSeconds", "0").running() as verifier:
        operator = Operator(verifier, tmp_path)
        # The second check begins after the verdict of the first one.
        for run, before in ((operator.run, Exit.OK), (operator.run_at_terminal, Exit.FAILED)):
            assert "idle" in run("verifier", "status", status=before)
            assert "verifier watch" in run("verifier", "check")
            run("verifier", "writes-off", "--wait", status=Exit.FAILED)
            assert "FAILED" in run("verifier", "watch", status=Exit.FAILED).upper()
            assert "failed" in run("verifier", "summary", status=Exit.FAILED)
            assert "shop.orders" in run("verifier", "mismatches")
            target = tmp_path / run.__name__
            run("verifier", "report", "-o", str(target))
            assert "shop.orders" in target.read_text()


def examine_running(operator: Operator, tmp_path: Path) -> None:
    """Run commands of syncctl that change nothing while the sync is RUNNING, and check their output."""
    progress = json.loads(operator.run("status", "--json"))["progress"]
    assert progress["state"] == "RUNNING"
    assert re.search(r"^shop\.orders +copied +100 % +1,000 ", operator.run("namespaces"), re.M)
    assert "No differences" in operator.run("mismatches")
    assert "shop.orders" in operator.run("reset", "--dry-run")
    assert "InvalidState" in operator.run("reverse", status=Exit.FAILED)
    archive = tmp_path / "found.tar.gz"
    operator.run("diagnose", "-o", str(archive), "--log", str(tmp_path / "log"))
    assert archive.stat().st_size


def watch_across_a_restart(operator: Operator, daemon: Daemon) -> None:
    """Pause, kill and resume the sync while `syncctl watch` shows its state, and check the output."""
    operator.run("pause")
    assert "PAUSED" in operator.run("commit", "--dry-run", status=Exit.FAILED)
    watch, output = operator.begin("watch", "--until", "canCommit")
    with watch:
        wait_for(lambda: "PAUSED" in output.read_text(), "watch shows the pause")
        daemon.kill()
        wait_for(
            lambda: "No answer, retrying" in output.read_text(),
            "watch shows the outage",
        )
        daemon.run()
        operator.run("resume")
        assert watch.wait(PATIENCE) == Exit.OK
    assert "commit: possible" in output.read_text()
