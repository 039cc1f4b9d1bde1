"""Builds the root file system of the container image from the Dockerfile, without a container daemon.

The steps are read from the Dockerfile, and run in containers (`container`). A new Debian system takes the place of the
base image.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from tests.packages.container import OF_DOCKER, Mount, Setup, finish
from tests.packages.debian import Debian

# The files that Debian's slim images leave out.
_SLIM = (
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "info", "locale", "man")),
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    "--dpkgopt=path-include=/usr/share/locale/locale.alias",
)
# The certificates that this machine trusts: pip may have to download from a mirror or through a proxy.
_CERTIFICATES = Mount("/run/host.crt", Path("/etc/ssl/certs/ca-certificates.crt"))
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    """The image. `root` is the folder of its files; `health` is the command of its health check."""

    root: Path
    environment: Mapping[str, str]
    user: tuple[int, int]
    entrypoint: tuple[str, ...]
    health: tuple[str, ...]


@dataclass
class _Stage:
    """A stage of the build. `settings` maps each instruction that changes no file to its arguments."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": _PATH})
    settings: dict[str, str] = field(default_factory=dict)

    def run(self, text: str) -> None:
        step = Setup(
            root=self.root,
            command=("/bin/sh", "-c", text),
            environment={"HOME": "/root", "PIP_CERT": _CERTIFICATES.inside, **self.environment},
            user=self.user(),
            mounts=(_CERTIFICATES,),
            capabilities=OF_DOCKER,
        )
        done = finish(step, self.root.parent)
        assert done.returncode == 0, (text, done.stdout[-4000:], done.stderr[-4000:])

    def set_variables(self, text: str) -> None:
        for assignment in shlex.split(text):
            name, _, value = assignment.partition("=")
            self.environment[name] = Template(value).substitute(self.environment)

    def user(self) -> tuple[int, int]:
        user, _, group = self.settings.get("USER", "0:0").partition(":")
        return int(user), int(group)

    def image(self) -> Image:
        _, _, health = self.settings["HEALTHCHECK"].partition("CMD ")
        return Image(
            root=self.root,
            environment=self.environment,
            user=self.user(),
            entrypoint=tuple(json.loads(self.settings["ENTRYPOINT"])),
            health=tuple(json.loads(health)),
        )


def build(context: Path, place: Path) -> Image:
    """Build the image from the Dockerfile in the folder `context`; write its files below the folder `place`.

    Files that .dockerignore names are deleted from `context`. Raises ValueError for an instruction that this function
    does not know.
    """
    _delete_ignored(context)
    stages: dict[str, _Stage] = {}
    for name, text in _instructions((context / "Dockerfile").read_text()):
        if name == "FROM":
            base, _, stage_name = text.partition(" AS ")
            stage = stages[stage_name] = _Stage(place / f"stage-{len(stages)}")
            _debian(base).copy_to(stage.root)
        elif name == "RUN":
            stage.run(text)
        elif name == "COPY":
            *options, source, target = text.split()
            from_stage = [each.removeprefix("--from=") for each in options]
            origin = stages[from_stage[0]].root if from_stage else context
            _copy(origin / source.lstrip("/"), stage.root / target.lstrip("/"))
        elif name == "ENV":
            stage.set_variables(text)
        elif name in ("USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT"):
            stage.settings[name] = text
        else:
            raise ValueError(f"unknown instruction {name}")
    return stage.image()


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the arguments of each instruction of a Dockerfile."""
    text = re.sub(r"^#.*\n", "", text, flags=re.M)
    for line in re.sub(r"\\\n *", "", text).splitlines():
        if line.strip():
            name, _, arguments = line.partition(" ")
            yield name, arguments.strip()


def _debian(base: str) -> Debian:
    """Return the Debian system that takes the place of a base image such as debian:bookworm-slim."""
    found = re.fullmatch(r"debian:(\w+)-slim", base)
    if found is None:
        raise ValueError(f"unknown base image {base}")
    return Debian(found[1], "slim", _SLIM)


def _delete_ignored(context: Path) -> None:
    for pattern in (context / ".dockerignore").read_text().split():
        for path in [*context.glob(pattern)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _copy(source: Path, target: Path) -> None:
    """Copy the content of the folder `source`. The copies belong to root, as in a build with Docker."""
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
