"""Runs whole syncs with the commands of the Kubernetes manifests, also when pods are lost and restarted elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support import manifests, writes
from tests.support.certificates import make_certificates
from tests.support.pair import Pair
from tests.support.service_process import ROOT, free_port
from tests.support.tokens import OPERATOR, bearer, write_tokens
from tests.support.waiting import wait_for

pytestmark = pytest.mark.three_members


class Cluster:
    """The pods of one kind of deployment, run as local processes with the files and commands of the manifests."""

    def __init__(self, kind: str, pair: Pair, folder: Path) -> None:
        self._kind, self._pair, self._folder = kind, pair, folder
        self.pods: dict[int, Pod] = {}
        self._generation = 0

    def declare(self, state: str) -> None:
        """Change the declared state, and replace every pod, as Kubernetes does when a file changes."""
        self._write_files(state)
        for number in range(2):
            self.replace(number)

    def replace(self, number: int) -> None:
        """Kill the pod with this number, if it exists, and start it with a new port and the newest files."""
        if number in self.pods:
            self.pods[number].kill()
        self.pods[number] = Pod(self._kind, number, self._files)

    def progress(self) -> list[dict[str, Any]]:
        return [each.progress() for each in self.pods.values()]

    def wait_for(self, name: str, value: Any) -> None:
        """Wait until the field `name` of the progress has this value in every pod."""

        def reached() -> bool:
            progress = self.progress()
            assert "FAILED" not in [each.get("state") for each in progress], progress
            return [each.get(name) for each in progress] == [value] * len(progress)

        wait_for(reached, f"{name} is {value}")

    def close(self) -> None:
        for each in self.pods.values():
            each.kill()

    def _write_files(self, state: str) -> None:
        self._generation += 1
        folder = self._folder / str(self._generation)
        folder.mkdir()
        tokens, certificate = write_tokens(folder), make_certificates(folder)
        self._files = {"/etc/syncsvc/tokens": tokens}
        for name in ("tls.crt", "tls.key"):
            self._files[f"/etc/syncsvc-tls/{name}"] = certificate.server
        certificate.server.chmod(0o600)
        for inside, outside in manifests.files(self._kind).items():
            if outside.name != "tokens":
                self._files[inside] = folder / outside.name
                self._files[inside].write_text(manifests.filled(outside, self._pair, state))


class Pod:
    """The process of one pod."""

    def __init__(self, kind: str, number: int, files: dict[str, Path]) -> None:
        container = manifests.container(kind)
        program = files["/etc/syncsvc/syncsvc.yaml"].parent / "bin"
        program.mkdir(exist_ok=True)
        entry = program / "syncsvc"
        entry.write_text(f'#!/bin/sh\nexec {sys.executable} -m syncsvc "$@"\n')
        entry.chmod(0o755)
        command = [*container.get("command", ["syncsvc"]), *container["args"]]
        for inside, outside in files.items():
            command = [each.replace(inside, str(outside)) for each in command]
        command = [each.replace("0.0.0.0", "127.0.0.1") for each in command]
        self._port = free_port()
        environment = {
            **os.environ,
            "PATH": f"{program}:{os.environ['PATH']}",
            "POD_INDEX": str(number),
            "SYNCSVC_PORT": str(self._port),
        }
        self._log = (program.parent / f"pod-{number}-{self._port}").open("w")
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=self._log, stderr=subprocess.STDOUT
        )

    def progress(self) -> dict[str, Any]:
        """Return the progress of the sync; empty while the process does not accept connections."""
        assert self._process.poll() is None, Path(self._log.name).read_text()
        with suppress(requests.ConnectionError):
            answer = requests.get(
                f"https://127.0.0.1:{self._port}/api/v1/progress",
                headers=bearer(OPERATOR),
                verify=False,
                timeout=30,
            )
            return dict(answer.json()["progress"])
        return {}

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


@pytest.fixture
def deployed(kind: str, pair: Pair, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(kind, pair, tmp_path)
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
@pytest.mark.parametrize("kind", ["shared", "standby"])
def test_pods_that_are_lost_continue_elsewhere(deployed: Cluster, pair: Pair) -> None:
    writes.fill(pair.source.client)
    deployed.declare("running")
    deployed.wait_for("info", "change event application")
    for number in range(2):
        deployed.replace(number)
        pair.source.client.d.c.insert_one({"_id": f"pod {number}"})
        deployed.wait_for("info", "change event application")
    writes.single_document_writes(pair.source.client)
    deployed.declare("committed")
    deployed.wait_for("state", "COMMITTED")
    pair.assert_equal()
