"""Tests the .deb and the .rpm on a new machine: installation, a migration across an upgrade, and removal.

The .deb is also tested with a newer Python, and with several instances of the daemon.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.packages.artefacts import NEXT_VERSION, Artefacts
from tests.packages.machine import Machine, new_root
from tests.packages.migration import Operator, migrate, written
from tests.support.pages import commands
from tests.support.pair import Pair
from tests.support.service_process import free_port
from tests.support.waiting import wait_for
from verifier.runtime.version import VERSION

CONFIGURATION = Path("etc/syncsvc/syncsvc.env")
# A setting that no sample configuration contains.
LOCAL = "SYNCSVC_LOAD_LEVEL=2"


@dataclass(frozen=True)
class Packager:
    """The commands of one package manager.

    `kept` is the suffix that a changed configuration file gets when the package is removed. `sample` is the suffix of
    the new sample configuration after an upgrade.
    """

    prepare: str
    file: Callable[[Artefacts], Path]
    install: str
    upgrade: str
    remove: str
    kept: str
    sample: str


def printed(page: str, title: str) -> str:
    """Return the commands in a section of a documentation page, as printed."""
    return "\n".join(block.text for block in commands(page, title))


_INSTALL_DEB = printed("docs/howto/install.rst", "Debian, Ubuntu") + " --yes"
DEB = Packager(
    prepare="apt-get update --quiet",
    file=lambda artefacts: artefacts.deb,
    install=_INSTALL_DEB,
    # The option answers the question of apt-get whether to keep a changed file.
    upgrade=f"{_INSTALL_DEB} -o Dpkg::Options::=--force-confold",
    remove=f"{printed('docs/howto/install.rst', 'Remove')} --yes",
    kept="",
    sample=".dpkg-dist",
)
# rpm cannot check the dependencies (hence --nodeps): its database does not list the packages of Debian.
RPM = Packager(
    prepare="apt-get update --quiet; apt-get install --yes --no-install-recommends rpm python3.11 procps",
    file=lambda artefacts: artefacts.rpm,
    install="rpm --install --nodeps *.rpm",
    upgrade="rpm --upgrade --nodeps *.rpm",
    remove="rpm --erase --nodeps syncsvc",
    kept=".rpmsave",
    sample=".rpmnew",
)


def bring(machine: Machine, file: Path) -> None:
    """Copy a package file into the home directory of the machine's root, in place of an earlier package."""
    machine.run("rm -f *.deb *.rpm")
    shutil.copy(file, machine.root / "root")


def configure(machine: Machine, pair: Pair, port: int) -> None:
    lines = [
        f"SYNCSVC_CLUSTER0='{pair.source.uri}'",
        f"SYNCSVC_CLUSTER1='{pair.destination.uri}'",
        f"SYNCSVC_PORT={port}",
        LOCAL,
    ]
    file = machine.root / CONFIGURATION
    file.write_text(file.read_text() + "\n".join(lines) + "\n")


def show(machine: Machine, name: str, unit: str = "syncsvc") -> str:
    return machine.run(f"systemctl show --value --property={name} {unit}").strip()


def test_the_deb_runs_with_a_newer_python(dist: Artefacts, pair: Pair, tmp_path: Path) -> None:
    """Install the package on Debian 13, which has Python 3.13: a migration and the removal must succeed."""
    with new_root(tmp_path, "trixie") as root:
        root.run(DEB.prepare)
        bring(root, dist.deb)
        refuse_other_installation(root)
        root.run(DEB.install)
        assert root.run("readlink /opt/syncsvc/bin/python3").strip() == "/usr/bin/python3.13"
        migrate(root.command, pair, free_port())
        root.run(DEB.remove)
        assert not (root.root / "opt" / "syncsvc").exists()


def refuse_other_installation(machine: Machine) -> None:
    """Try to install the package over a virtual environment: this must fail and leave the environment unchanged."""
    modules = "/opt/syncsvc/lib/python3.13/site-packages"
    machine.run(f"mkdir -p {modules}")
    refused = machine.attempt(DEB.install)
    assert "belongs to another installation" in refused.stdout + refused.stderr
    assert refused.returncode
    assert machine.run("find /opt/syncsvc").splitlines()[-1] == modules
    machine.run("rm -r /opt/syncsvc")


@pytest.mark.parametrize("packager", [DEB, RPM], ids=["deb", "rpm"])
def test_a_sync_survives_an_upgrade(
    dist: Artefacts, following: Artefacts, machine: Machine, pair: Pair, packager: Packager
) -> None:
    port = free_port()
    operator = Operator(machine.command, pair, port)
    install(machine, packager, packager.file(dist))
    configure(machine, pair, port)
    changed = (machine.root / CONFIGURATION).read_text()
    enable, status = commands("docs/howto/install.rst", "Configure the service")
    machine.run(enable.text)
    with written(pair):
        operator.wait_for_state("IDLE")
        machine.run(f"export SYNCCTL_URL=http://127.0.0.1:{port}; {status.text}")
        # Make the copy so slow that the upgrade happens during the copy.
        operator("limit", "--copy-documents", "100")
        operator.start()
        wait_for(lambda: '"collection copy"' in operator("status", "--json"), "the copy")
        before = show(machine, "MainPID")
        bring(machine, packager.file(following))
        machine.run(packager.upgrade)
        assert show(machine, "MainPID") != before and show(machine, "ActiveState") == "active"
        operator.wait_for_state("RUNNING")
        assert '"collection copy"' in operator("status", "--json")
        operator("limit", "--copy-documents", "none")
        operator("watch", "--until", "canCommit")
    assert versions_in_the_log(machine) == [VERSION, NEXT_VERSION]
    assert (machine.root / CONFIGURATION).read_text() == changed
    sample = (machine.root / f"{CONFIGURATION}{packager.sample}").read_text()
    assert sample.startswith("# Another sample.")
    assert f"version {NEXT_VERSION}" in operator("--version")
    operator.commit()
    remove(machine, packager, changed)


def install(machine: Machine, packager: Packager, file: Path) -> None:
    """Install the package `file`, and check the installed programs, files, user and service."""
    machine.run(packager.prepare)
    bring(machine, file)
    machine.run(packager.install)
    assert f"version {VERSION}" in machine.run("syncctl --version")
    assert show(machine, "ActiveState") == "inactive"
    assert "syncsvc" in machine.run("getent passwd syncsvc")
    assert machine.run("stat --format=%a:%U /etc/syncsvc/*.env").split() == ["600:root"] * 2
    for name in ("syncctl", "syncsvc", "syncsvc-verifier"):
        assert f'.TH "{name.upper()}" "1"' in machine.run(f"zcat /usr/share/man/man1/{name}.1.gz")
    completed = ". /usr/share/bash-completion/completions/syncctl; complete -p syncctl"
    assert "_syncctl_completion" in machine.run(f"bash -c '{completed}'")
    assert "#compdef syncctl" in machine.run("cat /usr/share/zsh/*/_syncctl")
    for name in ("alerts.yml", "grafana-dashboard.json"):
        machine.run(f"test -s /opt/syncsvc/share/syncsvc/monitoring/{name}")


def versions_in_the_log(machine: Machine) -> list[str]:
    """Return the versions of the daemon processes that have written the logs, the oldest process first."""
    text = machine.run("cat $(ls -tr /var/log/syncsvc/syncsvc*.log)")
    return re.findall(r'"Version info".*?"version": "([^"]+)"', text)


def remove(machine: Machine, packager: Packager, changed: str) -> None:
    """Remove the package, and check that the configuration and the logs stay until a .deb is purged.

    `changed` is the text of the changed configuration file.
    """
    machine.run(packager.remove)
    assert (machine.root / f"{CONFIGURATION}{packager.kept}").read_text() == changed
    assert machine.run("ls /var/log/syncsvc/syncsvc.log")
    left = machine.run("ls -d /opt/syncsvc /usr/bin/sync[cs]* 2>/dev/null || true")
    assert not left, left
    assert "syncsvc" not in machine.run(
        "systemctl list-units --all --plain 'syncsvc*'; ls -R /etc/systemd/system"
    )
    if packager is DEB:
        machine.run("apt-get purge --yes syncsvc")
        assert not machine.run("ls -d /etc/syncsvc /var/log/syncsvc 2>/dev/null || true")


def test_instances_are_units(dist: Artefacts, machine: Machine, pair: Pair) -> None:
    """Run two instances with the template unit, as docs/howto/install.rst says: they must share a sync.

    After a rotation of their logs, the first instance must write to a new file.
    """
    install(machine, DEB, dist.deb)
    configure(machine, pair, free_port())
    ports = {27182: free_port(), 27183: free_port()}
    text = printed("docs/howto/install.rst", "Several instances")
    for shown, port in ports.items():
        text = text.replace(str(shown), str(port))
    machine.run(text)
    first, second = (Operator(machine.command, pair, port) for port in ports.values())
    (machine.root / "root" / "start.yaml").write_text(
        "source: cluster0\ndestination: cluster1\ninstances: [a, b]\n"
    )
    with written(pair):
        for each in (first, second):
            each.wait_for_state("IDLE")
            each("start", "--file", "start.yaml")
        first("watch", "--until", "canCommit")
    for each in (first, second):
        each("commit", "--yes")
    for each in (first, second):
        each.wait_for_state("COMMITTED")
    pair.assert_equal()
    machine.run("apt-get install --yes logrotate; logrotate --force /etc/logrotate.d/syncsvc")
    rotated = partial(
        machine.run, "ls /var/log/syncsvc/a/syncsvc.log.1 /var/log/syncsvc/b/syncsvc.log.1"
    )
    assert len(rotated().split()) == 2
    first("status")
    wait_for(
        lambda: machine.attempt("test -s /var/log/syncsvc/a/syncsvc.log").returncode == 0,
        "a new log",
    )
    machine.run(DEB.remove)
    assert show(machine, "ActiveState", "syncsvc@a") == "inactive"
