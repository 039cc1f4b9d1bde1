"""A new Debian system, in which a package is installed like on a new machine.

It shares the network of this machine, so that its programs reach the servers of the tests.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.pages import ROOT
from tests.support.waiting import PATIENCE, wait_for

# What a minimal Debian with systemd has. In particular, it has no Python.
_PACKAGES = "systemd,systemd-sysv,dbus"
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
}


@dataclass(frozen=True)
class Machine:
    """A Debian system: the folder `root` of its files, and the command line `enter` that runs a command in it."""

    root: Path
    enter: tuple[str, ...]

    def command(self, *command: str) -> list[str]:
        """Return a command line that runs a command in this system, in the home of root."""
        variables = [f"{name}={value}" for name, value in _ENVIRONMENT.items()]
        return [*self.enter, "env", "-i", "--chdir=/root", *variables, *command]

    def attempt(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run a script in the shell of this system."""
        return subprocess.run(
            self.command("sh", "-e", "-c", text),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )

    def run(self, text: str) -> str:
        """Run a script in the shell of this system, and return its output; fail if a command fails."""
        done = self.attempt(text)
        assert done.returncode == 0, (text, done.stdout[-4000:], done.stderr[-4000:])
        return done.stdout


@contextmanager
def new_machine(folder: Path) -> Iterator[Machine]:
    """Boot a new Debian 12 in a folder for the block, with systemd as its first process."""
    root = _new_system(folder, "bookworm")
    # Without --register and --keep-unit, it would need systemd outside, too. It ends if the test is killed.
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
            # Ends all processes of the system.
            container.send_signal(signal.SIGTERM)
            container.wait(PATIENCE)
            shutil.rmtree(root, ignore_errors=True)


@contextmanager
def new_root(folder: Path, release: str) -> Iterator[Machine]:
    """Make a new Debian of a release for the block, in which no process runs."""
    root = _new_system(folder, release)
    shutil.copy("/etc/resolv.conf", root / "etc")
    subprocess.run(["mount", "--types", "proc", "proc", str(root / "proc")], check=True)
    try:
        yield Machine(root, ("chroot", str(root)))
    finally:
        subprocess.run(["umount", str(root / "proc")], check=True)
        shutil.rmtree(root, ignore_errors=True)


def _new_system(folder: Path, release: str) -> Path:
    """Copy the files of a new system into a folder. Its template in build is kept: `make clean` removes it."""
    assert os.getuid() == 0, "only root can run a new system"
    template = ROOT / "build" / f"debian-{release}"
    if not template.exists():
        making = template.with_suffix(".part")
        shutil.rmtree(making, ignore_errors=True)
        making.parent.mkdir(exist_ok=True)
        options = ["--quiet", "--variant=minbase", f"--include={_PACKAGES}", "--skip=cleanup/apt"]
        subprocess.run(["mmdebstrap", *options, release, str(making)], check=True)
        making.rename(template)
    root = folder / "system"
    subprocess.run(["cp", "--archive", str(template), str(root)], check=True)
    return root


def _systemd_below(process: int) -> int | None:
    """Return the child of a process that has become systemd; another child may exist shortly before."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    found = (int(each) for each in children if _name(each) == "systemd")
    return next(found, None)


def _name(process: str) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:  # it has ended
        return ""


def _is_booted(machine: Machine) -> bool:
    # "degraded": a service that needs more than a container has may fail.
    return machine.attempt("systemctl is-system-running").stdout.strip() in ("running", "degraded")
