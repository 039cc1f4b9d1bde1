"""Composes the warning about time-series measurements that no query of the source shows.

The fault of the servers behind it is described at `verifier.cluster.inventory.hidden_time_series`.
"""

from __future__ import annotations

from collections.abc import Collection

from verifier.cluster.namespace import Namespace, some_of


def warning(names: Collection[Namespace]) -> str:
    """Return the warning that the measurements of these time series are not synced. `names` must not be empty."""
    return (
        f"The source has buckets of {some_of(names)}, but no time-series collection of such a name, because a client "
        "inserted into the collection while another client created it. No query shows the measurements in these "
        "buckets, and the sync does not copy them. The documentation says how to recover them: see 'measurements that "
        "no query shows are not synced' in docs/reference/limits."
    )
