"""The history of a sync in this process, for charts: rates, waits for limits, lag and latencies, in bounded memory.

There are three series: a point every few seconds for 15 minutes, one per minute for six hours, and the whole time in
at most 720 points. When the last series is full, it is thinned to half, so its step doubles.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import NamedTuple

# Values are rounded to this many decimals, which keeps the answers short.
_DECIMALS = 3
# How long the first two series are, in seconds, and the step of the second one.
_SHORT, _LONG, _MINUTE = 15 * 60.0, 6 * 3600.0, 60.0
# The maximum number of points in the last series.
_MOST = 720
Value = float | None
# The time in UNIX seconds, then the values in the order of COLUMNS.
Row = tuple[Value, ...]

# Averages over the time since the previous point. The last three are the numbers of threads that waited because of a
# speed limit: a limit of the copy, the limit of change events, and the limit of the number of working threads.
_RATES = (
    "copiedBytesPerSecond",
    "copiedDocumentsPerSecond",
    "eventsReadPerSecond",
    "eventsAppliedPerSecond",
    "throttledCopyThreads",
    "throttledEventThreads",
    "throttledThreads",
)
# The highest values since the previous point.
_PEAKS = ("lagSeconds", "sourceLatencyMs", "destinationLatencyMs")
COLUMNS = ("time", *_RATES, *_PEAKS)


class Sample(NamedTuple):
    """The figures at one moment. `time` is in UNIX seconds, `at` is the same moment by the monotonic clock.

    `counts` are the totals from which rates are computed, `levels` the other values; both in the order of COLUMNS. None
    means unknown.
    """

    time: float
    at: float
    counts: tuple[Value, ...]
    levels: tuple[Value, ...]


@dataclass(frozen=True)
class Points:
    """Points of a series. If `restart` is true, they replace the points of earlier answers; else, they are appended.

    `step` is the interval between the points, in seconds. `cursor` identifies the last point.
    """

    rows: tuple[Row, ...]
    step: float
    cursor: str
    restart: bool


class _Series:
    """Points of a chart at intervals of `step` seconds; at most `most` of them are kept.

    When there are more, the oldest one is dropped. If `thinned`, every two points are merged instead, and `step`
    doubles.
    """

    def __init__(self, step: float, most: int, thinned: bool = False) -> None:
        self.step = step
        self._most = most
        self._thinned = thinned
        self._rows: deque[Row] = deque(maxlen=None if thinned else most)
        self._waiting: list[Row] = []
        self._since = 0.0
        # The number of points added so far. When the series is thinned, it becomes the number of the remaining points.
        self._added = 0

    def add(self, row: Row, at: float) -> None:
        """Add a measurement made at `at`, a time of the monotonic clock.

        The measurements of each interval are combined into one point.
        """
        if not self._waiting:
            self._since = self._since or at
        self._waiting.append(row)
        # A point ends a tenth of the step early, because the interval of the samples varies.
        if at - self._since < self.step * 0.9 and self._added:
            return
        self._rows.append(merged(self._waiting))
        self._added += 1
        self._waiting, self._since = [], at
        if self._thinned and len(self._rows) > self._most:
            self._thin()

    def _thin(self) -> None:
        rows = list(self._rows)
        self._rows = deque(merged(rows[n : n + 2]) for n in range(0, len(rows), 2))
        self._added = len(self._rows)
        self.step *= 2

    def points(self, identity: str, since: str | None) -> Points:
        """Return the points after the cursor `since`.

        Return all points if `since` is None, too old, or not a cursor of this series.
        `identity`, with which the cursors begin, names the process and the series.
        """
        prefix = f"{identity}.{self.step:g}."
        cursor = f"{prefix}{self._added}"
        known = _number(since, prefix)
        new = None if known is None else self._added - known
        if new is None or not 0 <= new <= len(self._rows):
            return Points(tuple(self._rows), self.step, cursor, True)
        rows = list(self._rows)
        return Points(tuple(rows[len(rows) - new :]), self.step, cursor, False)


def _number(cursor: str | None, prefix: str) -> int | None:
    """Return the number after the prefix of a cursor; None if it has another prefix or no such number."""
    if cursor is None or not cursor.startswith(prefix):
        return None
    text = cursor.removeprefix(prefix)
    # Longer numbers are not cursors, and Python refuses to convert very long ones.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


class History:
    """The chart series of one process. Only one thread may record samples; any thread may read points.

    `last_clean` is the last time at which the verification had completed its first pass and knew of no difference, in
    UNIX seconds; None if there is no verification, or if this process has not seen such a time yet. `step` is the
    interval between the points of the first series, in seconds.
    """

    RANGES = ("15m", "6h", "all")

    def __init__(self, step: float) -> None:
        self.last_clean: float | None = None
        self._identity = token_hex(4)
        self._lock = threading.Lock()  # guards the series
        self._before: Sample | None = None
        self._series = dict(
            zip(
                self.RANGES,
                (
                    _Series(step, int(_SHORT / step)),
                    _Series(_MINUTE, int(_LONG / _MINUTE)),
                    _Series(_MINUTE, _MOST, thinned=True),
                ),
                strict=True,
            )
        )

    def record(self, sample: Sample) -> None:
        """Add a sample. The first sample adds no point, because a rate needs two samples."""
        before, self._before = self._before, sample
        if before is None or sample.at <= before.at:
            return
        row = (sample.time, *rates(before, sample), *sample.levels)
        with self._lock:
            for series in self._series.values():
                series.add(row, sample.at)

    def points(self, name: str, since: str | None = None) -> Points:
        """Return the points of the series `name` ("15m", "6h" or "all") after the cursor `since`.

        Return all points if `since` is None, too old, or not a cursor of this series.
        """
        with self._lock:
            return self._series[name].points(f"{self._identity}.{name}", since)

    def averages(self) -> tuple[Row, Row]:
        """Return the figures of the last minute, and those of the last 15 minutes.

        Each result is a row in the order of COLUMNS, with average rates and the maxima of the other values. Both are
        empty before the first point is recorded.
        """
        rows = self.points(self.RANGES[0]).rows
        if not rows:
            return (), ()
        newest = rows[-1][0] or 0.0
        return merged([row for row in rows if newest - (row[0] or 0.0) < _MINUTE]), merged(rows)


def rates(before: Sample, after: Sample) -> tuple[Value, ...]:
    """Return the rates between two samples, per second, in the order of their `counts`; None for an unknown rate.

    If a total has shrunk, it was set to 0 between the samples, so its rate is unknown.
    """
    elapsed = after.at - before.at
    return tuple(
        (
            None
            if now is None or then is None or now < then
            else round((now - then) / elapsed, _DECIMALS)
        )
        for then, now in zip(before.counts, after.counts, strict=True)
    )


def merged(rows: Sequence[Row]) -> Row:
    """Combine rows into one row: the time of the last row, the average rates, and the maxima of the other values."""
    if len(rows) == 1:
        return rows[0]
    columns = list(zip(*rows, strict=True))
    middle = 1 + len(_RATES)
    averages = (_over(column, average=True) for column in columns[1:middle])
    peaks = (_over(column, average=False) for column in columns[middle:])
    return (columns[0][-1], *averages, *peaks)


def _over(column: Iterable[Value], average: bool) -> Value:
    known = [value for value in column if value is not None]
    if not known:
        return None
    return round(sum(known) / len(known), _DECIMALS) if average else max(known)
