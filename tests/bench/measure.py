"""Measures the cost of one run of a candidate with the figures in /proc, and decides the order of the candidates."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TypeVar

T = TypeVar("T")

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Measurement:
    """The cost of one run: its duration, and the CPU time and peak memory of the candidate's process.

    `others` is the average number of CPUs that unrelated processes used.
    """

    seconds: float
    cpu_seconds: float
    peak_mb: float
    others: float


class Stopwatch:
    """Measures the CPU time of a process since this object was created, and the peak memory since the process started.

    `ours` are the IDs of other processes that take part, such as servers: their CPU time does not count as that of
    unrelated processes (`Measurement.others`).
    """

    def __init__(self, pid: int, ours: Sequence[int]) -> None:
        self._pid = pid
        self._strangers = Strangers([pid, *ours])
        self._cpu_at_start = cpu_seconds(pid)
        self._start = monotonic()

    def read(self) -> Measurement:
        seconds = monotonic() - self._start
        return Measurement(
            seconds=seconds,
            cpu_seconds=cpu_seconds(self._pid) - self._cpu_at_start,
            peak_mb=_peak_mb(self._pid),
            others=self._strangers.cpu_seconds() / seconds,
        )


class Strangers:
    """Measures the CPU time of all processes on this machine except `ours`, beginning when this object is created.

    The result includes the time that the hypervisor gave to other guests. It is approximate: the kernel counts the
    time of the machine in ticks, but the time of a process exactly.
    """

    def __init__(self, ours: Sequence[int]) -> None:
        self._ours = ours
        self._at_start = self._cpu_seconds()

    def cpu_seconds(self) -> float:
        return max(0.0, self._cpu_seconds() - self._at_start)

    def _cpu_seconds(self) -> float:
        return _busy_seconds() - sum(map(cpu_seconds, self._ours))


def cpu_seconds(pid: int) -> float:
    """Return the user and system CPU time of a process and all its threads, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def turns(candidates: Sequence[T], rounds: int) -> Iterator[list[T]]:
    """Yield the order of the candidates for each round: A B C, then C B A, then A B C, and so on.

    With this order, a machine that becomes slower or faster during the benchmark affects all candidates about equally.
    """
    for number in range(rounds):
        yield list(reversed(candidates)) if number % 2 else list(candidates)


def _peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text().split()
    return int(status[status.index("VmHWM:") + 1]) * 1024 / 1e6


def _busy_seconds() -> float:
    fields = map(int, Path("/proc/stat").read_text().split()[1:9])
    user, nice, system, _, _, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / _TICKS
