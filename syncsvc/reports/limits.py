"""The answer to `GET /api/v1/limits`, and its field `throttledBy`, which the progress also has."""

from __future__ import annotations

from typing import Any

from syncsvc.figures.throttling import Throttled, Throttling
from syncsvc.limits import Limits, rates_shown
from syncsvc.source.cluster_load import Load
from verifier.runtime.quantities import utc_text

_UNKNOWN = Load()


def limits_report(limits: Limits, saved: bool, now: Throttling) -> dict[str, Any]:
    """Return the fields of the answer to `GET /api/v1/limits`, except `success`.

    `limits` are the limits as they were set; `now` contains the limits in effect, and the load of the clusters. `saved`
    is whether the limits are saved, so that a restarted process obeys them.
    """
    return {
        "limits": limits.shown(),
        "saved": saved,
        "effective": rates_shown(now.effective),
        "throttledBy": throttled_by(now.throttled),
        "measured": {
            side: _measured(now.loads.get(side, _UNKNOWN)) for side in ("source", "destination")
        },
    }


def throttled_by(throttled: Throttled | None) -> dict[str, str] | None:
    """Return the value of the field `throttledBy`; None while no limit slows the sync down."""
    if throttled is None:
        return None
    since = utc_text(throttled.since.timestamp())
    return {"what": throttled.limit.value, "reason": throttled.reason, "since": since}


def _measured(load: Load) -> dict[str, float | None]:
    latency = None if load.latency is None else round(1000 * load.latency, 1)
    return {
        "latencyMS": latency,
        "queue": load.queue,
        "replicationLagSeconds": load.replication_lag,
    }
