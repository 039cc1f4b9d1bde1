"""The speed limits of a sync: rates, time windows with other rates, and thresholds for automatic limits.

Requests, answers and saved documents have the same form, which `limits_of` reads and `Limits.shown` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, tzinfo
from enum import Enum
from typing import Any
from zoneinfo import ZoneInfo


class Limit(Enum):
    """The limits of the work of a sync; the values are their names in the API."""

    COPY_BYTES = "copyBytesPerSecond"
    COPY_DOCUMENTS = "copyDocumentsPerSecond"
    EVENTS = "eventsPerSecond"
    THREADS = "threads"


# The amount allowed by each limit. A limit that is missing does not apply.
Rates = Mapping[Limit, int]
# Limits, or changes to some of them, in the form of the API.
Document = Mapping[str, Any]

_TIME = "%H:%M"


@dataclass(frozen=True)
class Window:
    """A daily period with its own limits (`rates`), from `begin` until just before `end`.

    `begin` and `end` are times of day in the time zone `timezone`; `end` may be on the next day.
    """

    begin: time
    end: time
    timezone: str
    rates: Rates

    def contains(self, now: datetime) -> bool:
        """Return whether `now`, a time with a time zone, is in the window, by the clocks of the window's time zone."""
        local = now.astimezone(zone_of(self.timezone)).time()
        if self.begin < self.end:
            return self.begin <= local < self.end
        return local >= self.begin or local < self.end

    def __str__(self) -> str:
        return f"{self.begin:{_TIME}} to {self.end:{_TIME}} {self.timezone}"

    def shown(self) -> dict[str, Any]:
        return {
            "from": f"{self.begin:{_TIME}}",
            "to": f"{self.end:{_TIME}}",
            "timezone": self.timezone,
            "limits": rates_shown(self.rates),
        }


@dataclass(frozen=True)
class Auto:
    """The thresholds above which the sync slows down by itself, if `enabled`. A threshold of None is not checked.

    `queue` is a number of operations that wait on the primary. `queue` and `replication_lag_seconds` apply to each
    cluster.
    """

    enabled: bool = False
    source_latency_ms: int | None = 100
    destination_latency_ms: int | None = 100
    queue: int | None = 50
    replication_lag_seconds: int | None = 10

    def shown(self) -> dict[str, Any]:
        return {
            "enabled": self.enabled,
            "maxSourceLatencyMS": self.source_latency_ms,
            "maxDestinationLatencyMS": self.destination_latency_ms,
            "maxQueue": self.queue,
            "maxReplicationLagSeconds": self.replication_lag_seconds,
        }


@dataclass(frozen=True)
class Limits:
    """All limits of a sync. During a window, its rates replace `rates`; if windows overlap, the first one applies."""

    rates: Rates = field(default_factory=dict)
    windows: tuple[Window, ...] = ()
    auto: Auto = Auto()

    def at(self, now: datetime) -> tuple[Rates, Window | None]:
        """Return the rates at `now`, a time with a time zone, and the window they belong to (None: no window)."""
        window = next((each for each in self.windows if each.contains(now)), None)
        return (self.rates, None) if window is None else (window.rates, window)

    def shown(self) -> dict[str, Any]:
        """Return the limits in the form of the API; an absent limit is None."""
        windows = [each.shown() for each in self.windows]
        return {**rates_shown(self.rates), "windows": windows, "auto": self.auto.shown()}


def limits_of(document: Document) -> Limits:
    """Return the limits in `document`, which has the form of the API; an absent field gets its default.

    Requests are validated before this call. If a saved document is invalid, raises LookupError, TypeError, ValueError,
    AttributeError or OSError.
    """
    windows = tuple(map(_window, document.get("windows") or ()))
    return Limits(_rates(document), windows, _auto(document.get("auto") or {}))


def merged(document: Document, changes: Document) -> dict[str, Any]:
    """Return `document` updated with the fields of `changes`.

    The object `auto` is not replaced, but also updated field by field, unless its new value is None.
    """
    whole = {**document, **changes}
    if changes.get("auto") is not None:
        whole["auto"] = {**(document.get("auto") or {}), **changes["auto"]}
    return whole


def rates_shown(rates: Rates) -> dict[str, int | None]:
    """Return the rates in the form of the API; a limit that does not apply is None."""
    return {each.value: rates.get(each) for each in Limit}


def share_of(rates: Rates, instances: int) -> dict[Limit, int]:
    """Return the limits of one of several instances. The rates are divided equally; each is at least 1.

    The limit of threads is not divided.
    """
    return {
        limit: amount if limit is Limit.THREADS else max(1, amount // instances)
        for limit, amount in rates.items()
    }


def zone_of(name: str) -> tzinfo:
    """Return the time zone with this IANA name. Raises LookupError, ValueError or OSError if it is unknown here."""
    return UTC if name == "UTC" else ZoneInfo(name)


def _rates(document: Document) -> Rates:
    amounts = {each: document.get(each.value) for each in Limit}
    return {limit: int(amount) for limit, amount in amounts.items() if amount is not None}


def _window(document: Document) -> Window:
    begin, end = (datetime.strptime(document[each], _TIME).time() for each in ("from", "to"))
    timezone = document.get("timezone") or "UTC"
    zone_of(timezone)  # raises if this host does not know it
    return Window(begin, end, timezone, _rates(document["limits"] or {}))


def _auto(document: Document) -> Auto:
    defaults = Auto().shown()
    enabled, *thresholds = (document.get(name, default) for name, default in defaults.items())
    return Auto(bool(enabled), *(None if each is None else int(each) for each in thresholds))
