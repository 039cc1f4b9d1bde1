"""Runs the pods of packaging/kubernetes as containers, with their commands and volumes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.packages.container import Mount, Setup
from tests.packages.image import Image
from tests.support import manifests
from tests.support.certificates import make_certificates
from tests.support.pair import Pair
from tests.support.tokens import write_tokens

_CONFIG_MAP_MODE = 0o644


@dataclass(frozen=True)
class Pods:
    """The pods of one kind of deployment, between the clusters of `pair`. Their volumes are in `folder`."""

    kind: str
    image: Image
    pair: Pair
    folder: Path

    def setup(self, number: int, port: int) -> Setup:
        """Write the volumes of the pod with this number to a new folder, and return how its container runs.

        `port` is the port of its API, on a loopback address.
        """
        container = manifests.container(self.kind)
        command = [*container.get("command", self.image.entrypoint), *container.get("args", ())]
        security = manifests.pod(self.kind)["securityContext"]
        variables = {"POD_INDEX": str(number), "SYNCSVC_PORT": str(port)}
        return Setup(
            root=self.image.root,
            command=tuple(each.replace("0.0.0.0", "127.0.0.1") for each in command),
            environment={**self.image.environment, **variables},
            user=(security["runAsUser"], security["runAsGroup"]),
            mounts=tuple(self._volumes(self.folder / str(number))),
            is_read_only=container["securityContext"]["readOnlyRootFilesystem"],
        )

    def _volumes(self, folder: Path) -> list[Mount]:
        folder.mkdir()
        texts = self._texts(folder)
        volumes = {each["name"]: each for each in manifests.pod(self.kind)["volumes"]}
        mounts = []
        for each in manifests.container(self.kind)["volumeMounts"]:
            name, path = each["name"], each["mountPath"]
            if "emptyDir" in volumes[name]:
                mounts.append(Mount(path))
            else:
                files = {
                    file.name: text for file, text in texts.items() if str(file.parent) == path
                }
                _write_volume(folder / name, files, self._mode(volumes[name]), self._group())
                mounts.append(Mount(path, folder / name))
        return mounts

    def _texts(self, folder: Path) -> dict[Path, str]:
        """Return the content of the files that the pod mounts, by their paths in the container."""
        texts = {
            Path(inside): manifests.filled(outside, self.pair, "committed")
            for inside, outside in manifests.files(self.kind).items()
        }
        certificate = make_certificates(folder).server.read_text()
        tls = Path("/etc/syncsvc-tls")
        tokens = {Path("/etc/syncsvc/tokens"): write_tokens(folder).read_text()}
        return {**texts, **tokens, tls / "tls.crt": certificate, tls / "tls.key": certificate}

    def _group(self) -> int:
        return int(manifests.pod(self.kind)["securityContext"]["fsGroup"])

    @staticmethod
    def _mode(volume: Mapping[str, Any]) -> int:
        return int(volume.get("secret", {}).get("defaultMode", _CONFIG_MAP_MODE))


def _write_volume(folder: Path, files: Mapping[str, str], mode: int, group: int) -> None:
    """Write files as Kubernetes does: each is a symbolic link into the link `..data`, which an update replaces."""
    content = folder / "..2026_01_01"
    content.mkdir(parents=True)
    (folder / "..data").symlink_to(content.name)
    for name, text in files.items():
        (content / name).write_text(text)
        (content / name).chmod(mode)
        os.chown(content / name, 0, group)
        (folder / name).symlink_to(f"..data/{name}")
