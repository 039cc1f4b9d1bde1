"""Reports the role and the lease of a daemon with `--standby`, and the readiness of any daemon."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from syncsvc import errors
from syncsvc.figures.progress import ProgressSnapshot
from syncsvc.saved.lease import Lease
from syncsvc.state import State
from verifier.runtime.errors import OperationError
from verifier.runtime.waits import LongWait


class Role(Enum):
    ACTIVE = "active"
    STANDBY = "standby"


@dataclass(frozen=True)
class Standing:
    """The role of a daemon with `--standby`, and the newest lease that it has read.

    `lease` is None while none is known, for example before the first read, and while no daemon holds the lease.
    """

    role: Role = Role.STANDBY
    lease: Lease | None = None

    @property
    def is_standby(self) -> bool:
        return self.role is Role.STANDBY

    @property
    def where_active(self) -> str:
        """Return sentences that name the host and API address of the active daemon, or say that it is not known.

        If the lease has expired, name the daemon that was active last.
        """
        if self.lease is None:
            return "It is not known which daemon is active now."
        if self.lease.expired:
            return (
                f"The lease has expired. The last active daemon ran {self.lease.where}. A standby becomes active as "
                "soon as it reaches both clusters."
            )
        return f"The active daemon runs {self.lease.where}."


def refuse_on_standby(standing: Standing | None) -> None:
    """Raise OperationError NotActive if the process is a standby. `standing` is None without `--standby`."""
    if standing is not None and standing.is_standby:
        raise OperationError(
            errors.NOT_ACTIVE, f"This daemon is a standby. {standing.where_active}"
        )


def standing_report(standing: Standing) -> dict[str, Any]:
    """Return the fields `role` and `lease` of the progress; only `role` if no lease is known."""
    shown: dict[str, Any] = {"role": standing.role.value}
    if standing.lease is not None:
        lease = standing.lease
        shown["lease"] = {
            "host": lease.host,
            "address": lease.address,
            "since": _time(lease.since),
            "expires": _time(lease.expires),
        }
    return shown


def shown_by_standby(
    own: Mapping[str, Any], saved: Mapping[str, Any] | None, waits: Iterable[LongWait]
) -> dict[str, Any]:
    """Return the progress that a standby shows: the progress of the active daemon, with warnings of the standby itself.

    `waits` are the long waits of the standby, which become these warnings. `saved` is the progress that the
    active daemon has saved in the lease. If `saved` is None, return `own`, the progress as the standby itself knows it.
    """
    if saved is None:
        return dict(own)
    shown = dict(saved)
    warnings = [*shown.get("warnings", ()), *(each.text for each in waits)]
    return {**shown, "warnings": warnings} if warnings else shown


def _time(time: datetime) -> str:
    return f"{time.isoformat(timespec='milliseconds')}Z"


def silent_clusters(names: Collection[str], now: ProgressSnapshot) -> list[str]:
    """Return the names of the clusters that did not answer their last ping; clusters never pinged are left out."""
    return [name for name in names if name in now.pings and now.pings[name].seconds is None]


def why_not_ready(
    standing: Standing | None,
    state: State,
    step: str,
    names: Collection[str],
    now: ProgressSnapshot,
) -> str | None:
    """Return a sentence that says why this process is not ready; None if the process is ready.

    `names` are the clusters to which the process is connected. `step` describes the current step of the startup, such
    as "reading the saved sync". A standby is ready while it waits for the lease.
    """
    if not names:
        return f"The process is {step}."
    if silent := silent_clusters(names, now):
        return f"The last ping was not answered by {' and '.join(silent)}."
    if unknown := [name for name in names if name not in now.pings]:
        return f"The process has not pinged {' and '.join(unknown)} yet."
    if state is State.INITIALIZING and not (standing is not None and standing.is_standby):
        return f"The process is {step}."
    return None
