"""Creates the files of new Debian systems with mmdebstrap, from packages of a Debian mirror."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.pages import ROOT


@dataclass(frozen=True)
class Debian:
    """A minimal Debian system. `release` is a name such as bookworm, and `options` are those of mmdebstrap.

    `kind` distinguishes the systems of a release whose options differ.
    """

    release: str
    kind: str
    options: tuple[str, ...]

    def copy_to(self, root: Path) -> None:
        """Write the files of a new system into the folder `root`, which must not exist.

        The files are copied from a template in build/. The template is created if it does not exist, and stays until
        `make clean` removes it. Requires root.
        """
        assert os.getuid() == 0, "only root can create a system"
        template = ROOT / "build" / f"debian-{self.release}-{self.kind}"
        if not template.exists():
            making = template.with_suffix(".part")
            shutil.rmtree(making, ignore_errors=True)
            making.parent.mkdir(exist_ok=True)
            command = ["mmdebstrap", "--quiet", "--variant=minbase", *self.options]
            subprocess.run([*command, self.release, str(making)], check=True)
            making.rename(template)
        subprocess.run(["cp", "--archive", str(template), str(root)], check=True)
