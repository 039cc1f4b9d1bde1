"""Small disks: in-memory file systems that can fill up and be enlarged. Mounting them requires root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Disk:
    """A mounted in-memory file system of a fixed size, which can be enlarged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def free(self) -> int:
        """Return the number of free bytes."""
        room = os.statvfs(self.folder)
        return room.f_bavail * room.f_frsize

    def fill_up(self, leave: int = 0) -> None:
        """Fill the disk with a file, until only `leave` bytes are free."""
        with (self.folder / "ballast").open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, max(1, self.free - leave))

    def enlarge(self, megabytes: int) -> None:
        self._mount(f"remount,size={megabytes}m")

    def _mount(self, options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "syncsvc-test", str(self.folder)]
        subprocess.run(command, check=True, capture_output=True)


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Disk]:
    """Mount an in-memory file system of `megabytes` MB on a folder during the block. Requires root."""
    folder.mkdir(parents=True, exist_ok=True)
    disk = Disk(folder)
    disk._mount(f"size={megabytes}m")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)
