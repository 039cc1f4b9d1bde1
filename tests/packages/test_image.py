"""Tests the container image: builds its files from the Dockerfile, and migrates in containers without privileges.

The root file systems of the tested containers are read-only. These containers have the mounts, the user and the
commands that the documentation and the manifests for Kubernetes give them.
"""

from __future__ import annotations

import re
import shlex
import signal
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from tests.packages.artefacts import clone
from tests.packages.container import Container, Mount, Setup, finish, running
from tests.packages.image import Image, build
from tests.packages.migration import Operator
from tests.packages.pods import Pods
from tests.support import writes
from tests.support.pages import ROOT, blocks
from tests.support.pair import Pair
from tests.support.service_process import free_port
from tests.support.tokens import OPERATOR, bearer
from tests.support.waiting import wait_for
from verifier.runtime.version import VERSION

LIBRARIES = Path("opt", "syncsvc", "lib", "python3.11", "site-packages")


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Build the image from the last commit."""
    place = tmp_path_factory.mktemp("image")
    clone(place / "context")
    return build(place / "context", place)


def documented(image: Image, *command: str, **environment: str) -> Setup:
    """Return the setup of a container with the `docker run` options of docs/howto/kubernetes.rst.

    `command` replaces the entry point of the image; `environment` is added to the environment variables of the image.
    """
    (options,) = (
        shlex.split(block.text.splitlines()[0])
        for block in blocks(Path("docs/howto/kubernetes.rst"))
        if block.text.startswith("docker run")
    )
    assert {"--read-only", "--env-file"} <= {*options}
    assert options[options.index("--network") + 1] == "host"
    writable = [after for option, after in zip(options, options[1:]) if option == "--tmpfs"]
    return Setup(
        root=image.root,
        command=command or image.entrypoint,
        environment={**image.environment, **environment},
        user=image.user,
        mounts=tuple(Mount(path) for path in writable),
        is_read_only=True,
    )


def clusters(pair: Pair, port: int) -> dict[str, str]:
    return {
        "SYNCSVC_CLUSTER0": pair.source.uri,
        "SYNCSVC_CLUSTER1": pair.destination.uri,
        "SYNCSVC_PORT": str(port),
    }


def is_healthy(container: Container, image: Image) -> bool:
    return container.attempt(*image.health).returncode == 0


def test_the_image_has_the_locked_versions(image: Image) -> None:
    found = {
        f"{name.replace('_', '-')}=={version}"
        for path in (image.root / LIBRARIES).glob("*.dist-info")
        for name, version in [path.name.removesuffix(".dist-info").rsplit("-", 1)]
    }
    locked = (ROOT / "packaging" / "requirements.txt").read_text()
    assert found == {*re.findall(r"^\S+==\S+", locked, re.M), f"syncsvc=={VERSION}"}


def test_only_root_can_change_the_programs(image: Image) -> None:
    files = [path.lstat() for path in (image.root / "opt").rglob("*") if not path.is_symlink()]
    assert files and image.user[0]
    assert not [each for each in files if each.st_uid or each.st_gid or each.st_mode & 0o022]


def test_only_the_documented_folder_is_writable(image: Image, tmp_path: Path) -> None:
    """Search for writable folders as the owner of all files and as the user of the image: only /tmp may be writable."""
    prune = "-path /proc -prune -o -path /sys -prune -o -path /dev -prune"
    command = ("find", "/", *prune.split(), "-o", "-type", "d", "-writable", "-print")
    for user in ((0, 0), image.user):
        done = finish(replace(documented(image, *command), user=user), tmp_path)
        assert done.stdout.split() == ["/tmp"], done


def test_the_image_migrates(image: Image, pair: Pair, tmp_path: Path) -> None:
    port = free_port()
    with running(documented(image, **clusters(pair, port)), tmp_path) as container:
        operator = Operator(container.command, pair, port)
        wait_for(lambda: is_healthy(container, image), "the daemon answers")
        assert "uid=10001 gid=10001 groups=10001" in container.run("id")
        operator.migrate()
        assert container.stop() == 0


def test_a_daemon_that_does_not_answer_is_unhealthy(
    image: Image, pair: Pair, tmp_path: Path
) -> None:
    """Suspend and continue a daemon: the health check must fail, and then succeed.

    The daemon listens on another loopback address, and the environment names a proxy that does not exist.
    """
    port = free_port()
    environment = {
        **clusters(pair, port),
        "SYNCSVC_BIND_ADDRESS": "127.0.0.2",
        "http_proxy": "http://127.0.0.1:9",
    }
    with running(documented(image, **environment), tmp_path) as container:
        wait_for(lambda: is_healthy(container, image), "the daemon answers")
        container.signal(signal.SIGSTOP)
        assert not is_healthy(container, image)
        container.signal(signal.SIGCONT)
        wait_for(lambda: is_healthy(container, image), "the daemon answers again")
        assert container.stop() == 0


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
@pytest.mark.parametrize("kind", ["shared", "standby"])
def test_the_pods_of_kubernetes_migrate(
    image: Image, pair: Pair, tmp_path: Path, kind: str
) -> None:
    writes.fill(pair.source.client)
    pods = Pods(kind, image, pair, tmp_path)
    with ExitStack() as stack:
        started = {}
        for number in range(2):
            port = free_port()
            started[port] = stack.enter_context(running(pods.setup(number, port), tmp_path))
        for port, container in started.items():
            wait_for(lambda: is_committed(container, port), "the sync is committed")
            wait_for(lambda: is_healthy(container, image), "the health check succeeds")
            assert "Traceback" not in container.log.read_text()
            assert container.stop() == 0
    pair.assert_equal()


def test_the_job_of_kubernetes_finds_a_difference(image: Image, pair: Pair, tmp_path: Path) -> None:
    pods = Pods("verification", image, pair, tmp_path)
    equal = finish(pods.setup(0, free_port()), tmp_path)
    assert equal.returncode == 0, equal
    pair.source.client.d.c.insert_one({"_id": "missing"})
    different = finish(pods.setup(1, free_port()), tmp_path)
    assert different.returncode == 1 and "the clusters differ" in different.stdout, different


def is_committed(container: Container, port: int) -> bool:
    """Return whether the API of a pod, on this port, reports the state COMMITTED; false if the API does not answer.

    Fail if the container has ended, or the state is FAILED.
    """
    assert container.is_running()
    with suppress(requests.ConnectionError):
        answer = requests.get(
            f"https://127.0.0.1:{port}/api/v1/progress",
            headers=bearer(OPERATOR),
            verify=False,
            timeout=30,
        )
        progress = answer.json()["progress"]
        assert progress["state"] != "FAILED", progress
        return bool(progress["state"] == "COMMITTED")
    return False
