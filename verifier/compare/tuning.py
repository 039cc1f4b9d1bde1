"""The sizes and intervals of a check, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from verifier.runtime.tuning import MB, number, seconds, size


@dataclass(frozen=True)
class CheckTuning:
    """The tuning of a check. The defaults are for production; tests pass their own."""

    stream_wait_ms: int = number(200, "ms", "How long a getMore of an idle change stream waits.")
    first_page: int = number(1000, "documents", "Size of the first page of a comparison.")
    most_page: int = number(50_000, "documents", "Largest page of a comparison.")
    pages_bytes: int = size(
        64 * MB, "Pages of both sides that all workers of a check read and compare at once."
    )
    unmatched_bytes: int = size(
        40 * MB,
        "Documents of both sides that may wait for their counterpart; must exceed one reply of each side.",
    )
    feed_bytes: int = size(
        4 * MB,
        "Changed keys that may wait to be saved; when there are more, the reader of the change stream waits.",
    )
    remembered: int = number(
        200_000, "rechecks", "Saved rechecks that are remembered; each takes about 100 bytes."
    )
    least_pause: float = seconds(1.0, "Shortest pause between two generations.")
    most_pause: float = seconds(
        30.0, "Longest pause between two generations that found the same differences."
    )
    position_interval: float = seconds(2.0, "How often the position of a change stream is saved.")
    idle_lag: float = seconds(
        15.0,
        "How far the change stream of an idle cluster may be behind before a no-op in the oplog advances it.",
    )
    task_interval: float = seconds(0.3, "How often finished tasks are saved.")
    progress_interval: float = seconds(10.0, "How often the log shows the progress of a check.")
