"""The numbers of threads, sizes and intervals of a sync, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from verifier.cluster.rawcursor import PAGE_BYTES
from verifier.compare.tuning import CheckTuning
from verifier.runtime.tuning import MB, number, seconds, size

# The approximate size of the largest document, in bytes: the limit of MongoDB is 16 MiB.
LARGEST_DOCUMENT = 16_000_000
# How many copies of a document exist while the driver sends or receives it.
_COPIES = 3
# How many copies of a page exist until the driver sends it: the reply, and the documents that a command holds.
_PAGE_COPIES = 2
# How many copies of the events of a row exist while the event spool saves it, as measured with 20 MB that cannot be
# compressed.
_SPOOL_COPIES = 5
# The memory of the process without documents, in bytes, as measured. It includes the driver, the figures of a
# verification, and at most 1 MB for the history in the charts.
_PROCESS = 84_000_000


class ThreadFactors(NamedTuple):
    """The factors by which the numbers of threads are multiplied on a long link.

    `copy` is for the threads that copy documents or apply events, `comparison` for those that compare documents. On a
    long link, threads wait for replies most of the time, so several do the work of one. This applies most of all to a
    thread that compares, because comparing a page takes only a few milliseconds.
    """

    copy: int
    comparison: int


# The keys are the shortest round-trip times, in seconds, for which the factors apply. The longest one comes first.
THREAD_FACTORS = {
    0.05: ThreadFactors(4, 8),
    0.01: ThreadFactors(2, 4),
    0.0: ThreadFactors(1, 1),
}


@dataclass(frozen=True)
class LoadLevel:
    """The numbers of threads that read collections, write batches, apply change events, and compare documents."""

    readers: int
    writers: int
    lanes: int
    comparers: int

    def over(self, round_trip: float) -> LoadLevel:
        """Return this load level with its numbers of threads multiplied for a round-trip time in seconds.

        While some threads wait for replies on a long link, the others work. The factors are in `THREAD_FACTORS`.
        """
        factors = next(each for least, each in THREAD_FACTORS.items() if round_trip >= least)
        return LoadLevel(
            factors.copy * self.readers,
            factors.copy * self.writers,
            factors.copy * self.lanes,
            factors.comparison * self.comparers,
        )


LOAD_LEVELS = {
    1: LoadLevel(readers=1, writers=1, lanes=1, comparers=1),
    2: LoadLevel(readers=1, writers=2, lanes=2, comparers=1),
    3: LoadLevel(readers=2, writers=4, lanes=4, comparers=2),
    4: LoadLevel(readers=4, writers=8, lanes=8, comparers=4),
}

# The size limit of the event spool unless --eventSpoolMB gives another, in compressed bytes.
EVENT_SPOOL_BYTES = 20_000_000_000


@dataclass(frozen=True)
class Tuning:
    """The sizes (in bytes) and intervals (in seconds; `stream_wait_ms` in milliseconds) of a sync.

    Only tests change the defaults, except for `spool_limit`, which the option --eventSpoolMB sets.
    The fields for the copy come first, then those for change events, verification, and periodic checks.
    """

    page_bytes: int = size(
        PAGE_BYTES, "Size of a page of the copy, which one call reads and one command writes."
    )
    reading_bytes: int = size(
        32 * MB,
        "Maximum total size of the pages that all readers request at the same time; the driver holds three copies of "
        "them.",
    )
    pages_bytes: int = size(
        32 * MB,
        "Maximum size of all pages of the copy that wait for a writer or are being written.",
    )
    sending_bytes: int = size(
        24 * MB,
        "Maximum total size of the documents that all threads send at the same time; the driver holds three copies of "
        "them.",
    )
    partition_bytes: int = size(
        64 * MB,
        "Approximate maximum size of one partition of a large collection; a partition is usually a range of _id.",
    )
    copy_save_interval: float = seconds(1.0, "How often the resume point of a copy is saved.")
    settle_interval: float = seconds(
        1.0,
        "How often the progress that all instances have made in the copy is saved; less often if a save takes long.",
    )
    portion_bytes: int = size(
        1 * MB,
        "Size of the events that are collected before they are passed to a lane, at the latest at the end of a page.",
    )
    waiting_events_bytes: int = size(24 * MB, "Maximum size of all events that wait in the lanes.")
    lane_batch_bytes: int = size(4 * MB, "Size of the events that one lane applies in one batch.")
    reread_bytes: int = size(
        16 * MB,
        "Maximum size of the documents that all lanes together reread from the source at a time.",
    )
    spool_row_bytes: int = size(
        4 * MB, "Size of the events in one row of the event spool, before compression."
    )
    spool_interval: float = seconds(
        30.0, "Time after which a row of the event spool is saved even if the row is not full."
    )
    pause_retry: float = seconds(
        10.0,
        "How long a paused sync that cannot save events in the event spool waits before the first retry.",
    )
    # The size limit of the event spool, in bytes; set by the option --eventSpoolMB.
    spool_limit: int = EVENT_SPOOL_BYTES
    stream_wait_ms: int = number(200, "ms", "Longest wait of a getMore on an idle change stream.")
    position_interval: float = seconds(
        1.0, "How often the resume point of the change stream is saved."
    )
    note_interval: float = seconds(
        4.0,
        "How often a no-op is appended to the source's oplog, so that the change stream of an idle source advances.",
    )
    verification_bytes: int = size(
        64 * MB,
        "Approximate maximum size of the range of a collection that one verification task compares.",
    )
    grace: float = seconds(
        3.0,
        "How long, at most, remaining differences are rechecked at the end of a verification, because documents may "
        "expire late.",
    )
    check: CheckTuning = CheckTuning()
    oplog_interval: float = seconds(10.0, "How often the oplog of the source is checked.")
    shard_key_interval: float = seconds(
        10.0, "How often the shard keys of the source are checked for changes."
    )
    balancer_interval: float = seconds(
        10.0, "How often the sync checks that the balancers are stopped."
    )
    definition_interval: float = seconds(
        30.0,
        "How often, at most, the definitions of a source older than MongoDB 6.0 are checked for changes.",
    )
    instance_interval: float = seconds(
        1.0, "How often the saved records of the other instances are read."
    )
    most_silence: float = seconds(
        10.0, "How long an instance may send no heartbeat before a warning is shown."
    )
    report_interval: float = seconds(30.0, "How often the log shows the progress of the sync.")
    dashboard_interval: float = seconds(
        15.0, "How often the documents for mongosync dashboards are written."
    )
    ping_interval: float = seconds(5.0, "How often the clusters are pinged.")
    history_step: float = seconds(
        5.0, "The interval between points in the charts of the last 15 minutes."
    )
    lease_seconds: float = seconds(
        6.0, "How long the lease of an active daemon (with --standby) is valid after a renewal."
    )
    lease_interval: float = seconds(1.0, "How often an active daemon renews its lease.")
    lease_poll: float = seconds(
        0.5, "How often a standby reads the lease, and an active daemon retries a failed renewal."
    )
    source_patience: float = seconds(
        60.0,
        "How long a reset waits for a source that does not answer. The reset then leaves the write block and balancer "
        "of the source as they are.",
    )
    desired_retry: float = seconds(
        10.0, "How long --desiredState waits before it sends a refused command again."
    )
    startup_wait: float = seconds(
        30.0, "How long a command waits until the startup of the process is complete."
    )

    @property
    def memory_needed(self) -> int:
        """Return the number of bytes of memory that the process may need; the number of threads does not change it.

        The estimate is for a copy during which change events are spooled, because that phase needs the most memory.
        """
        # A row that is almost full may get one more page of the change stream.
        of_spool = _SPOOL_COPIES * (self.spool_row_bytes + LARGEST_DOCUMENT)
        sending = _COPIES * (self.reading_bytes + self.sending_bytes)
        return _PROCESS + _PAGE_COPIES * self.pages_bytes + sending + of_spool
