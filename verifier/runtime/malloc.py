"""Tells the C library to keep the memory of large buffers, instead of giving each back to the kernel and asking again.

A page of documents is a few megabytes and passes through several buffers. Returning them costs the copy a third of its
CPU (`make bench`); keeping them costs no memory, since the next page needs them again, whichever thread has it: all
threads share one arena, where each would keep what it needed once in one of its own.
"""

from __future__ import annotations

import contextlib
import ctypes

# Parameters of mallopt(3), and their values, the thresholds in bytes.
_TRIM_THRESHOLD = (-1, 64 << 20)
_MMAP_THRESHOLD = (-3, 32 << 20)
_ARENA_MAX = (-8, 1)


def keep_large_buffers() -> None:
    """Does nothing where the C library has no such setting."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for parameter, value in (_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX):
            library.mallopt(parameter, value)
