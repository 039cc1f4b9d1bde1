"""Runs containers with runc, the program that starts the processes of containers for Docker and for Kubernetes.

runc needs no daemon. A container uses the network of the host, so that its programs can reach the servers of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.waiting import PATIENCE, wait_for

# The capabilities of root in a container of Docker, and so in the steps of a Dockerfile.
_NAMES = (
    "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE NET_RAW SETFCAP SETGID SETPCAP SETUID "
    "SYS_CHROOT"
)
OF_DOCKER = tuple(f"CAP_{name}" for name in _NAMES.split())
_SETS = ("bounding", "effective", "permitted")
# Docker and Kubernetes mount these files of the host, too.
_OF_HOST = ("/etc/resolv.conf", "/etc/hosts")
# The file systems that every program needs. /dev/shm is not among them.
_SYSTEM = ("/proc", "/dev", "/sys", "/sys/fs/cgroup")


@dataclass(frozen=True)
class Mount:
    """A file system at the path `inside` of a container: the host's folder or file `outside`, which is read-only there.

    Without `outside`, it is an empty file system in memory that every user may write to.
    """

    inside: str
    outside: Path | None = None

    def entry(self) -> dict[str, Any]:
        """Return this mount in the form of the OCI runtime specification."""
        entry: dict[str, Any] = {"destination": self.inside}
        if self.outside is None:
            # Docker's options of --tmpfs.
            options = ["nosuid", "nodev", "noexec", "mode=1777"]
            return {**entry, "type": "tmpfs", "source": "tmpfs", "options": options}
        options = ["rbind", "ro", "nosuid", "nodev"]
        return {**entry, "source": str(self.outside), "options": options}


@dataclass(frozen=True)
class Setup:
    """Describes how the first process of a container runs. `root` is the folder with the container's files.

    `user` is a user ID and a group ID. If `is_read_only` is true, only the mounts without `outside` are writable.
    `capabilities` are those of the process.
    """

    root: Path
    command: tuple[str, ...]
    environment: Mapping[str, str]
    user: tuple[int, int] = (0, 0)
    mounts: tuple[Mount, ...] = ()
    is_read_only: bool = False
    capabilities: tuple[str, ...] = ()

    def write_to(self, bundle: Path) -> None:
        """Create the folder `bundle` with the sample configuration of runc, changed to the settings of this object."""
        bundle.mkdir()
        subprocess.run(["runc", "spec", "--bundle", str(bundle)], check=True)
        file = bundle / "config.json"
        config = json.loads(file.read_text())
        config["root"] = {"path": str(self.root), "readonly": self.is_read_only}
        config["mounts"] = [
            *(each for each in config["mounts"] if each["destination"] in _SYSTEM),
            *(Mount(path, Path(path)).entry() for path in _OF_HOST),
            *(each.entry() for each in self.mounts),
        ]
        namespaces = config["linux"]["namespaces"]
        config["linux"]["namespaces"] = [each for each in namespaces if each["type"] != "network"]
        config["process"] |= {
            "terminal": False,
            "args": self.command,
            "env": [f"{name}={value}" for name, value in self.environment.items()],
            "user": {"uid": self.user[0], "gid": self.user[1]},
            "capabilities": {kind: self.capabilities for kind in _SETS},
        }
        file.write_text(json.dumps(config))


@dataclass(frozen=True)
class Container:
    """A running container. `process` is the runc process that waits for the end of the container."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def command(self, *command: str) -> list[str]:
        """Return a command line for the host that runs `command` in this container, as the user of the container."""
        return ["runc", "exec", self.name, *command]

    def attempt(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in this container, and return its exit status and output."""
        return subprocess.run(
            self.command(*command),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )

    def run(self, *command: str) -> str:
        """Run a command in this container, and return its output; fail if the status of the command is not 0."""
        done = self.attempt(*command)
        assert done.returncode == 0, (command, done.stdout, done.stderr, self.log.read_text())
        return done.stdout

    def signal(self, number: int) -> None:
        """Send a signal to the first process of this container."""
        os.kill(self._state()["pid"], number)

    def stop(self) -> int:
        """Send SIGTERM to the first process of this container, wait until it has ended, and return its exit status.

        Unlike `docker stop`, this sends no SIGKILL: raises TimeoutExpired if the process does not end in time.
        """
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def is_running(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return bool(self._state().get("status") == "running")

    def _state(self) -> dict[str, Any]:
        done = subprocess.run(["runc", "state", self.name], capture_output=True, text=True)
        state: dict[str, Any] = json.loads(done.stdout or "{}")
        return state


@contextmanager
def running(setup: Setup, folder: Path) -> Iterator[Container]:
    """Run a container during the block. Its output and its configuration are in the folder `folder`."""
    name, command = _prepare(setup, folder)
    log = folder / f"{name}.log"
    with log.open("wb") as output, subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
    ) as process:
        container = Container(name, process, log)
        try:
            wait_for(container.is_running, "the container runs")
            yield container
        finally:
            # This fails if the container has already ended.
            subprocess.run(["runc", "delete", "--force", name], stderr=subprocess.DEVNULL)
            process.wait(PATIENCE)


def finish(setup: Setup, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a container until its first process ends, and return the exit status and the output of the process."""
    _, command = _prepare(setup, folder)
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def _prepare(setup: Setup, folder: Path) -> tuple[str, list[str]]:
    """Write the configuration of a new container to a folder below `folder`.

    Return the container's name, and the command line that runs it. The container ends if the test is killed.
    """
    name = f"syncsvc-{uuid.uuid4().hex}"
    setup.write_to(folder / name)
    run = ["runc", "run", "--bundle", str(folder / name), name]
    return name, ["setpriv", "--pdeathsig=TERM", *run]
