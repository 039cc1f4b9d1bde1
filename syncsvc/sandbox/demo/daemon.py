"""Runs the sync service as a separate process, and operates it with `syncctl`, as a user would.

The figures for the display come from the HTTP API.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from tempfile import gettempdir
from textwrap import indent
from threading import Event
from time import monotonic
from types import TracebackType
from typing import Any, Self

import requests

from syncsvc.sandbox.reaper import keeper

START_SECONDS = 30.0
STOP_SECONDS = 10.0
REQUEST_SECONDS = 30.0
POLL_SECONDS = 0.1
# How long to wait for the end of the daemon after a failed request: its connections close a little before it ends.
DEATH_SECONDS = 0.5
LINES_SHOWN = 15

# The operator's tool; it is shown as the script that is installed beside the interpreter.
_SYNCCTL = [sys.executable, "-m", "syncsvc.ctl"]
_SCRIPT = Path(sys.executable).with_name("syncctl")

Document = Mapping[str, Any]


class DaemonError(RuntimeError):
    """Raised if the service has ended or does not answer, a command or the sync has failed, or a wait has timed out."""


@dataclass(frozen=True)
class Progress:
    """The figures in the last answers of the service. A figure that is unknown is None, 0 or empty."""

    state: str
    info: str
    can_commit: bool
    lag_seconds: int | None
    events_applied: int | None
    total_bytes: int
    copied_bytes: int
    total_documents: int | None
    compared_documents: int
    mismatches: int
    error: str
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_answers(cls, answer: Document, namespaces: Document) -> Self:
        """Build a Progress from the answers to /progress and /namespaces."""
        progress = answer["progress"]
        compared = progress.get("verification", {}).get("destination", {})
        verified = [each["verification"] for each in namespaces.get("namespaces", ())]
        copied = progress.get("collectionCopy") or {}
        errors = progress.get("error"), progress.get("errorDescription")
        return cls(
            state=progress["state"],
            info=progress.get("info") or "",
            can_commit=progress.get("canCommit", False),
            lag_seconds=progress.get("lagTimeSeconds"),
            events_applied=progress.get("totalEventsApplied"),
            total_bytes=copied.get("estimatedTotalBytes") or 0,
            copied_bytes=copied.get("estimatedCopiedBytes") or 0,
            total_documents=compared.get("estimatedDocumentCount"),
            compared_documents=compared.get("hashedDocumentCount", 0),
            mismatches=sum(each["mismatches"] for each in verified if each),
            error=": ".join(text for text in errors if text),
            warnings=tuple(progress.get("warnings", ())),
        )


class DaemonProcess:
    """A running service: the constructor starts it, and the end of the `with` block ends it.

    Call `wait_until_ready` before `progress` and `operate`.

    `cluster0` and `cluster1` are connection strings. `say` prints a line.
    """

    def __init__(self, cluster0: str, cluster1: str, say: Callable[[str], None]) -> None:
        self._say = say
        port = _free_port()
        self._address = f"http://127.0.0.1:{port}"
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy between this process and the loopback address
        self._logs = keeper.make_folder(Path(gettempdir()))
        command = ["-m", "syncsvc", "--cluster0", cluster0, "--cluster1", cluster1]
        command += ["--port", str(port), "--logPath", str(self._logs)]
        say(f"$ {shlex.join([sys.executable, *command])}")
        with Path(self._logs, "output").open("wb") as output:
            self._process = keeper.spawn([sys.executable, *command], output)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session.close()
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        keeper.kill(self._process)
        keeper.remove_folder(self._logs)

    def wait_until_ready(self) -> None:
        """Wait until the service accepts commands.

        Raises DaemonError if the service ends, or is not ready within 30 seconds.
        """
        self._say(f"$ export SYNCCTL_URL={self._address}")
        deadline = monotonic() + START_SECONDS
        pause = Event()
        while not self._is_ready():
            if self._process.poll() is not None:
                raise self.error(self._ending(0))
            if monotonic() > deadline:
                raise self.error(f"The daemon did not become ready within {START_SECONDS:.0f} s.")
            pause.wait(POLL_SECONDS)

    def progress(self) -> Progress:
        """Return the progress of the sync. Raises DaemonError if the sync has failed, or if there is no answer."""
        answers = self._ask("progress"), self._ask("namespaces")
        progress = Progress.from_answers(*answers)
        if progress.state == "FAILED":
            raise self.error(f"The sync has failed. {progress.error}")
        return progress

    def operate(self, *arguments: str) -> None:
        """Run `syncctl` with these arguments; print the command and its output.

        Raises DaemonError if `syncctl` ends with an error.
        """
        inside = _SCRIPT.is_relative_to(Path.cwd())
        script = _SCRIPT.relative_to(Path.cwd()) if inside else _SCRIPT
        self._say(f"$ {shlex.join([str(script), *arguments])}")
        done = subprocess.run(
            [*_SYNCCTL, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"SYNCCTL_URL": self._address},
            # Ctrl-C in the terminal must reach this process only, which then ends syncctl.
            start_new_session=True,
        )
        self._say(indent(done.stdout.rstrip(), "  "))
        if done.returncode:
            raise self.error(f"syncctl ended with status {done.returncode}; see the output above.")

    def error(self, message: str) -> DaemonError:
        """Return a DaemonError with this message and the end of the service's log."""
        return DaemonError("\n".join([message, "The end of the daemon's log:", *self._log_end()]))

    def _ask(self, action: str) -> Document:
        try:
            answer: Document = self._session.get(self._url(action), timeout=REQUEST_SECONDS).json()
        except requests.RequestException as error:
            with suppress(subprocess.TimeoutExpired):
                raise self.error(self._ending(DEATH_SECONDS)) from error
            raise self.error(f"The daemon does not answer: {error}") from error
        return answer

    def _is_ready(self) -> bool:
        try:
            answer = self._session.get(self._url("progress"), timeout=REQUEST_SECONDS)
        except (requests.ConnectionError, requests.Timeout):
            return False
        return Progress.from_answers(answer.json(), {}).state != "INITIALIZING"

    def _url(self, action: str) -> str:
        return f"{self._address}/api/v1/{action}"

    def _ending(self, seconds: float) -> str:
        return f"The daemon has ended with exit status {self._process.wait(seconds)}."

    def _log_end(self) -> list[str]:
        files = sorted(self._logs.iterdir(), key=lambda path: path.stat().st_mtime)
        lines = [line for path in files for line in path.read_text(errors="replace").splitlines()]
        return lines[-LINES_SHOWN:]


def _free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
