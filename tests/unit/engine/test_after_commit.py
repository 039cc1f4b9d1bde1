"""Tests the warning about user writes that reached the source after the commit."""

from __future__ import annotations

from collections import Counter

from bson.timestamp import Timestamp

from syncsvc.engine.after_commit import warning_of
from verifier.cluster.namespace import Namespace


def test_the_warning_says_what_is_lost_and_what_to_do() -> None:
    found = Counter({Namespace("d", "b"): 4, Namespace("d", "a"): 2})
    first, last = Timestamp(1767225600, 3), Timestamp(1767225660, 1)
    assert warning_of(("cluster0", "cluster1"), found, first, last) == (
        "After the commit, cluster0 (the old source) accepted user writes that are not on cluster1: at least 6, in "
        "d.a, d.b; the first at 2026-01-01T00:00:00Z, the last at 2026-01-01T00:01:00Z. Stop the applications that "
        "write to cluster0. Then list the changes since Timestamp({t: 1767225600, i: 3}), and compare each document on "
        "both clusters before you correct it on cluster1, which may have a newer version: see 'Writes reached the "
        "source after the commit' in docs/howto/troubleshoot."
    )
