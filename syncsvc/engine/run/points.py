"""The points in a sync at which an observer is called (`verifier.runtime.observer`)."""

from __future__ import annotations

from enum import Enum


class Point(Enum):
    CONNECTED = "connected"
    STARTED = "started"
    PRIMARY_ASSIGNED = "primary shard assigned"
    INDEX_FOR_SHARD_KEY_BUILT = "index for shard key built"
    ZONES_SET = "zones set"
    COLLECTION_SHARDED = "collection sharded"
    COLLECTION_CREATED = "collection created"
    LISTED = "listed"
    BATCH_WRITTEN = "batch written"
    COPY_SAVED = "copy saved"
    PARTITION_COPIED = "partition copied"
    COLLECTION_COPIED = "collection copied"
    SPARE_INDEX_BUILT = "spare index built"
    INDEXES_BUILT = "indexes built"
    IDS_CLEARED = "ids cleared"
    EVENTS_APPLIED = "events applied"
    BARRIER_REACHED = "barrier reached"
    DEFINITION_APPLIED = "definition applied"
    POSITION_SAVED = "position saved"
    BLOCK_SAVED = "block saved"
    BALANCER_SAVED = "balancer saved"
    FAILURE_SAVED = "failure saved"
    REVERSAL_SAVED = "reversal saved"
    STEP_DONE = "step done"
    REVERSING = "reversing"
    COLLECTION_WEAKENED = "collection weakened"
    REVERSED = "reversed"
