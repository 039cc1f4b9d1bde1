"""The candidate `mongodump | mongorestore`, if both programs are on PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from resource import struct_rusage
from time import monotonic
from typing import IO

from syncsvc.sandbox import ReplicaSet
from tests.bench.clusters import servers
from tests.bench.data import DATABASE
from tests.bench.measure import Measurement, Strangers


def are_installed() -> bool:
    return all(map(shutil.which, ("mongodump", "mongorestore")))


def dump_and_restore(source: ReplicaSet, destination: ReplicaSet) -> Measurement:
    """Measure `mongodump | mongorestore`, including the start of both programs.

    CPU time and peak memory are the sums for both programs. Raises RuntimeError if one of them fails.
    """
    dump = ["mongodump", f"--uri={source.uri}", f"--db={DATABASE}", "--archive", "--quiet"]
    restore = ["mongorestore", f"--uri={destination.uri}", "--archive", "--quiet"]
    strangers = Strangers([os.getpid(), *servers(source, destination)])
    start = monotonic()
    with _piped(dump, None) as reading:
        with _piped(restore, reading.stdout) as writing:
            # Close our copy of the pipe, so that the dump fails instead of blocking forever if the restore has ended.
            _close(reading.stdout)
            usages = [_end(writing), _end(reading)]
    seconds = monotonic() - start
    cpu_seconds = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return Measurement(
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        peak_mb=sum(usage.ru_maxrss for usage in usages) * 1024 / 1e6,
        others=max(0.0, strangers.cpu_seconds() - cpu_seconds) / seconds,
    )


@contextmanager
def _piped(command: Sequence[str], stdin: IO[bytes] | None) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def _close(pipe: IO[bytes] | None) -> None:
    assert pipe is not None
    pipe.close()


def _end(process: subprocess.Popen[bytes]) -> struct_rusage:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{process.args!r} ended with exit status {process.returncode}")
    return usage
