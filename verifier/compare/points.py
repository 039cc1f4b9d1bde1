"""The points in a check at which an observer is called (`verifier.runtime.observer`)."""

from __future__ import annotations

from enum import Enum


class Point(Enum):
    BEGUN = "begun"
    LISTED = "listed"
    DEFINITION_COMPARED = "definition compared"
    TASK_DONE = "task done"
    POSITION_SAVED = "position saved"
    GENERATION_BEGUN = "generation begun"
    GENERATION_DONE = "generation done"
    WRITES_OFF = "writes off"
    DRAINED = "drained"
    VERDICT_SAVED = "verdict saved"
