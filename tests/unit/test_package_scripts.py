"""The scripts of the .deb and the .rpm warn, but succeed, if systemd cannot restart a unit or read the units again.

A removal stops and disables the units. It also succeeds without `systemctl`.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "packaging" / "linux" / "scripts"
UNITS = ("syncsvc.service", "syncsvc@*.service", "syncsvc-verifier.service")
# Logs its arguments, and fails if they are those of the variable FAILING.
SYSTEMCTL = '#!/bin/sh\necho "$*" >> "$CALLS"\n[ "$*" != "$FAILING" ]\n'
SUCCEEDING = "#!/bin/sh\n"


@dataclass(frozen=True)
class Host:
    """A folder in place of the root of a machine, with `systemd-sysusers` but without `systemctl`."""

    root: Path

    def boot(self) -> None:
        """Add systemctl, and the folder by which scripts recognize a running systemd."""
        (self.root / "run/systemd/system").mkdir(parents=True)
        self.add("bin/systemctl", SYSTEMCTL)

    def add(self, path: str, text: str) -> None:
        """Add a program."""
        program = self.root / path
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)

    def run(self, script: str, argument: str, failing: str = "") -> str:
        """Run a script, which must succeed, and return its warnings.

        `failing` are the arguments with which systemctl fails.
        """
        text = (SCRIPTS / script).read_text()
        for folder in ("/run/systemd", "/opt/syncsvc", "/usr/bin"):
            text = text.replace(folder, f"{self.root}{folder}")
        done = subprocess.run(
            ["/bin/sh", "-c", text, script, argument],
            env={
                "PATH": str(self.root / "bin"),
                "CALLS": str(self.root / "calls"),
                "FAILING": failing,
            },
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    def calls(self) -> list[str]:
        """Return the arguments of all calls of systemctl."""
        return (self.root / "calls").read_text().splitlines()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    host = Host(tmp_path)
    (tmp_path / "opt/syncsvc/lib").mkdir(parents=True)
    for name in ("bin/systemd-sysusers", "usr/bin/python3.13", "opt/syncsvc/bin/python3"):
        host.add(name, SUCCEEDING)
    for name in ("find", "ln", "rm"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "")
    return host


def test_an_upgrade_succeeds_if_a_unit_is_masked(host: Host) -> None:
    host.boot()
    warned = host.run("postinstall.sh", "configure", "try-restart syncsvc.service")
    assert host.calls() == ["daemon-reload", *(f"try-restart {unit}" for unit in UNITS)]
    assert warned == (
        "syncsvc: could not restart syncsvc.service; it may still run the old version. Restart it by hand.\n"
    )


@pytest.mark.parametrize(
    "script, argument", [("postinstall.sh", "configure"), ("postremove.sh", "remove")]
)
def test_units_that_cannot_be_read_again_cause_a_warning(
    host: Host, script: str, argument: str
) -> None:
    host.boot()
    warned = host.run(script, argument, "daemon-reload")
    assert warned == (
        "syncsvc: systemctl daemon-reload failed, so systemd may use old units. Run it again.\n"
    )


def test_a_removal_needs_no_systemctl(host: Host) -> None:
    assert not host.run("preremove.sh", "remove")
    assert not (host.root / "opt/syncsvc/bin/python3").exists()


def test_a_removal_stops_and_disables_the_units(host: Host) -> None:
    host.boot()
    assert not host.run("preremove.sh", "0")
    assert host.calls() == [
        f"stop {' '.join(UNITS)}",
        "--quiet disable syncsvc.service syncsvc@.service syncsvc-verifier.service",
    ]
