"""What the reports are made of: all that a process knows of its sync at one moment. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from syncsvc.figures.progress import ProgressSnapshot
from syncsvc.saved.run import RunRecord
from syncsvc.state import State


@dataclass(frozen=True)
class Sync:
    """Without a record there is no sync."""

    state: State
    record: RunRecord | None
    snapshot: ProgressSnapshot
    can_commit: bool
