"""Makes the C library keep the memory of large buffers, instead of returning it to the kernel.

A page of documents is a few megabytes and passes through several buffers. Returning and requesting the memory of these
buffers each time takes a third of the CPU time of the copy (`make bench`). The kept memory does not accumulate, because
the next page uses it again, in any thread: all threads share one malloc arena. With separate arenas, each arena would
keep the peak usage of its threads.
"""

from __future__ import annotations

import contextlib
import ctypes

# Parameters of mallopt(3) and their values; thresholds are in bytes.
_TRIM_THRESHOLD = (-1, 64 << 20)
_MMAP_THRESHOLD = (-3, 32 << 20)
_ARENA_MAX = (-8, 1)


def keep_large_buffers() -> None:
    """Make the C library keep the memory of freed buffers; a no-op if the library has no such settings."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for parameter, value in (_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX):
            library.mallopt(parameter, value)
