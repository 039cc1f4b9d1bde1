"""The sizes and intervals of a check, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from verifier.runtime.tuning import MB, number, seconds, size


@dataclass(frozen=True)
class CheckTuning:
    """The tuning of a check. The defaults are for production; tests pass their own."""

    stream_wait_ms: int = number(200, "ms", "Longest wait of a getMore on an idle change stream.")
    end_wait_ms: int = number(
        20,
        "ms",
        "Longest wait of a getMore on an idle change stream while users wait for the end of a check or of a commit.",
    )
    first_page: int = number(
        1000,
        "documents",
        "Number of documents in the first page of a comparison if their size is unknown, as in a recheck. A "
        "page is a group of documents that are compared together.",
    )
    most_page: int = number(
        50_000,
        "documents",
        "Largest number of documents in a page, which is a group of documents that are compared together.",
    )
    pages_bytes: int = size(
        64 * MB,
        "Total size of the pages that all workers of a check compare at the same time; each worker compares one page "
        "of each cluster at a time.",
    )
    unmatched_bytes: int = size(
        40 * MB,
        "Size of the documents of a comparison task that may wait for their counterparts on the other cluster; must "
        "exceed the size of two replies, one from each cluster.",
    )
    feed_bytes: int = size(
        4 * MB,
        "In a sync: size of the keys of changed documents that may wait to be saved; above this size, the reader of "
        "the change stream waits.",
    )
    remembered: int = number(
        200_000,
        "rechecks",
        "Number of saved rechecks that are kept in memory; each takes about 100 bytes.",
    )
    least_pause: float = seconds(
        1.0,
        "Shortest pause between two generations of a check, which are its passes over the documents. The first "
        "generation after the end of user writes does not wait for it.",
    )
    most_pause: float = seconds(
        30.0,
        "Longest pause before a check compares differences again, or ten times the duration of the last generation if "
        "that is longer. The pause doubles while the numbers of differences stay the same.",
    )
    position_interval: float = seconds(
        2.0, "Interval at which the position of a change stream is saved."
    )
    idle_lag: float = seconds(
        15.0,
        "Lag of a change stream above which a no-op is written to the oplog to advance the stream, because the "
        "cluster may be idle.",
    )
    task_interval: float = seconds(0.3, "Interval at which finished tasks are saved.")
    progress_interval: float = seconds(
        10.0, "Interval at which the log of the separate verifier shows the progress of a check."
    )
