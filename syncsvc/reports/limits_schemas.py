"""The schemas of the answer to `GET /api/v1/limits`, and of its field `throttledBy`, which the progress also has."""

from __future__ import annotations

from marshmallow import fields

from syncsvc.limits import Limit
from verifier.runtime.openapi import SuccessAnswer, always, nullable
from verifier.runtime.schemas import Boolean, Strict


class ThrottledBy(Strict):
    what = always(fields.Enum, "The limit that slows the sync down.", Limit, by_value=True)
    reason = always(fields.String, "The reason why this limit applies.")
    since = always(
        fields.String, "The time since which this limit has slowed the sync down, in UTC."
    )


class _CurrentRates(Strict):
    """The limits of the sync's speed. A limit that does not apply is null."""

    copyBytesPerSecond = nullable(
        fields.Integer,
        "The maximum number of bytes copied per second; null if there is no limit.",
    )
    copyDocumentsPerSecond = nullable(
        fields.Integer,
        "The maximum number of documents copied per second; null if there is no limit.",
    )
    eventsPerSecond = nullable(
        fields.Integer,
        "The maximum number of change events applied per second; null if there is no limit.",
    )
    threads = nullable(
        fields.Integer,
        "The maximum number of threads in each instance that read documents or write batches; null if there is no "
        "limit.",
    )


class _LimitWindow(Strict):
    class Meta(Strict.Meta):
        include = {
            "from": always(fields.String, "The time at which the window begins each day, as HH:MM.")
        }

    to = always(
        fields.String,
        "The time at which the window ends, as HH:MM; on the next day if it is before `from`.",
    )
    timezone = always(fields.String, "The time zone of `from` and `to`.")
    limits = always(
        fields.Nested,
        "The limits during the window, in place of all limits that apply outside the window.",
        _CurrentRates,
    )


class _AutoLimit(Strict):
    """The thresholds above which the sync slows down by itself. A threshold that is not checked is null."""

    enabled = always(Boolean, "Whether the sync slows down while a cluster is overloaded.")
    maxSourceLatencyMS = nullable(
        fields.Integer,
        "The latency of a small read, in milliseconds, above which the source counts as overloaded; null if not "
        "checked.",
    )
    maxDestinationLatencyMS = nullable(
        fields.Integer,
        "The latency of a small read, in milliseconds, above which the destination counts as overloaded; null if "
        "not checked.",
    )
    maxQueue = nullable(
        fields.Integer,
        "The number of operations queued on the primary, above which a cluster counts as overloaded; null if not "
        "checked.",
    )
    maxReplicationLagSeconds = nullable(
        fields.Integer,
        "The lag of the slowest secondary, in seconds, above which a cluster counts as overloaded; null if not "
        "checked.",
    )


class _CurrentLimits(_CurrentRates):
    windows = always(
        fields.List, "The daily periods with different limits.", fields.Nested(_LimitWindow)
    )
    auto = always(
        fields.Nested, "The thresholds above which the sync slows down by itself.", _AutoLimit
    )


class _ClusterLoad(Strict):
    """The newest measurement of the load of a cluster; unknown values are null."""

    latencyMS = nullable(
        fields.Float,
        "The latency of a small read, in milliseconds; null if unknown.",
    )
    queue = nullable(
        fields.Integer,
        "The number of operations queued on the cluster's primary; null if unknown, as on a sharded cluster.",
    )
    replicationLagSeconds = nullable(
        fields.Integer,
        "The lag of the cluster's slowest secondary, in seconds; null if there is none, or if unknown, as on a sharded "
        "cluster.",
    )


class _Measured(Strict):
    source = always(
        fields.Nested, "The load of the source (before a start, cluster0).", _ClusterLoad
    )
    destination = always(
        fields.Nested, "The load of the destination (before a start, cluster1).", _ClusterLoad
    )


class LimitsAnswer(SuccessAnswer):
    limits = always(
        fields.Nested, "The limits of the sync's speed, as they were set.", _CurrentLimits
    )
    saved = always(
        Boolean,
        "Whether all limits are saved, so that a restarted process obeys them; false while changes are only in memory, "
        "for example before the start of the sync or after a reset.",
    )
    effective = always(
        fields.Nested,
        "The limits that this process obeys now: its share of the limits for this time of day, lowered by `auto`; "
        "null for a suspended limit, such as each limit during a commit.",
        _CurrentRates,
    )
    throttledBy = nullable(
        fields.Nested,
        "The limit that slows the sync down; null while no work waits for a limit.",
        ThrottledBy,
    )
    measured = always(
        fields.Nested,
        "The load of the clusters. It is measured only while `auto` is enabled, even before a start, but not on a "
        "standby.",
        _Measured,
    )
