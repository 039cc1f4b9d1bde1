"""Creates new Debian systems, in which tests install a package as on a new machine.

A system uses the network of the host, so that its programs can reach the servers of the tests.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.packages.debian import Debian
from tests.support.waiting import PATIENCE, wait_for

# The packages of a minimal Debian with systemd. Python is not among them.
_PACKAGES = "systemd,systemd-sysv,dbus"
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
}


@dataclass(frozen=True)
class Machine:
    """A Debian system. `root` is the folder of its files.

    `enter` is the beginning of a command line on the host that runs a command in the system.
    """

    root: Path
    enter: tuple[str, ...]

    def command(self, *command: str) -> list[str]:
        """Return a command line for the host that runs `command` in this system, in root's home directory."""
        variables = [f"{name}={value}" for name, value in _ENVIRONMENT.items()]
        return [*self.enter, "env", "-i", "--chdir=/root", *variables, *command]

    def attempt(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run a script in the shell of this system; return its exit status and output."""
        return subprocess.run(
            self.command("sh", "-e", "-c", text),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )

    def run(self, text: str) -> str:
        """Run a script in the shell of this system, and return its output; fail if a command of the script fails."""
        done = self.attempt(text)
        assert done.returncode == 0, (text, done.stdout[-4000:], done.stderr[-4000:])
        return done.stdout


@contextmanager
def new_machine(folder: Path) -> Iterator[Machine]:
    """Boot a new Debian 12 with systemd, whose files are in `folder`; stop and delete it at the end of the block."""
    root = _new_system(folder, "bookworm")
    # With these options, systemd-nspawn needs no systemd on the host. setpriv ends the system if the test is killed.
    options = ["--quiet", "--register=no", "--keep-unit", "--boot", f"--directory={root}"]
    command = ["setpriv", "--pdeathsig=TERM", "systemd-nspawn", *options]
    with (folder / "boot.log").open("wb") as log, subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
    ) as container:
        try:
            init = wait_for(lambda: _systemd_below(container.pid), "systemd has started")
            namespaces = ("--mount", "--uts", "--ipc", "--pid", "--root")
            machine = Machine(root, ("nsenter", f"--target={init}", *namespaces))
            wait_for(lambda: _is_booted(machine), "the system has booted")
            yield machine
        finally:
            # SIGTERM ends all processes of the system.
            container.send_signal(signal.SIGTERM)
            container.wait(PATIENCE)
            shutil.rmtree(root, ignore_errors=True)


@contextmanager
def new_root(folder: Path, release: str) -> Iterator[Machine]:
    """Create the files of a Debian system of this release, without booting it; delete them at the end of the block."""
    root = _new_system(folder, release)
    shutil.copy("/etc/resolv.conf", root / "etc")
    subprocess.run(["mount", "--types", "proc", "proc", str(root / "proc")], check=True)
    try:
        yield Machine(root, ("chroot", str(root)))
    finally:
        subprocess.run(["umount", str(root / "proc")], check=True)
        shutil.rmtree(root, ignore_errors=True)


def _new_system(folder: Path, release: str) -> Path:
    root = folder / "system"
    debian = Debian(release, "systemd", (f"--include={_PACKAGES}", "--skip=cleanup/apt"))
    debian.copy_to(root)
    return root


def _systemd_below(process: int) -> int | None:
    """Return the ID of the process's child that runs systemd; None if there is none.

    Before systemd runs, the process can have another child for a short time.
    """
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    found = (int(each) for each in children if _name(each) == "systemd")
    return next(found, None)


def _name(process: str) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:  # it has ended
        return ""


def _is_booted(machine: Machine) -> bool:
    # Accept "degraded": services that need more than a container provides may fail.
    return machine.attempt("systemctl is-system-running").stdout.strip() in ("running", "degraded")
