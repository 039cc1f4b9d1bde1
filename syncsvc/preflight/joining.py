"""Checks whether several instances may run a sync together, and whether this one may join a running sync. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from syncsvc import errors
from syncsvc.options import StartOptions
from syncsvc.preflight.findings import Findings
from syncsvc.preflight.rules import emptiness_violations
from syncsvc.saved.peers import described, differences
from syncsvc.saved.run import METADATA_DATABASE, RunRecord
from syncsvc.settings import DEFAULT_ID
from syncsvc.state import State
from verifier.runtime.errors import Violation


def instances_of(instance: str, found: Findings) -> tuple[str, ...]:
    """Return the IDs of all instances that run the sync, the names of the source's shards; empty for one alone."""
    shards = found.source.shards
    return shards if instance in shards and len(shards) > 1 else ()


def begun_by_others(instance: str, found: Findings) -> tuple[RunRecord, ...]:
    """Return the run records of the instances whose run this one can join; empty if there is no such run."""
    names = {each.instance for each in found.runs}
    joins = names < set(instances_of(instance, found)) and instance not in names
    return found.runs if joins else ()


def id_violations(instance: str, found: Findings) -> Iterator[Violation]:
    """Yield a violation if the source is sharded, and the instance's ID is neither the default nor a shard's name."""
    source = found.source
    if source.is_sharded and instance not in (DEFAULT_ID, *source.shards):
        yield errors.UNKNOWN_INSTANCE, (
            f"The id of this instance is {instance}, but the shards of the source are "
            f"{', '.join(source.shards)}."
        )


def join_violations(
    options: StartOptions,
    instances: tuple[str, ...],
    found: Findings,
    others: tuple[RunRecord, ...],
) -> Iterator[Violation]:
    """Yield the violations that prevent this instance from joining the run that other instances began.

    `instances` are the IDs of all instances, the coordinator first. `others` are the run records of those that have
    begun.
    """
    identities = tuple(each.identity or each.address for each in (found.source, found.destination))
    for each in others:
        if each.identities != identities:
            yield errors.METADATA_LEFT_OVER, (
                f"The database {METADATA_DATABASE} holds the metadata of the instance {each.instance}, which syncs "
                f"{' to '.join(each.identities)}."
            )
        if each.state not in (State.RUNNING, State.PAUSED):
            yield errors.METADATA_LEFT_OVER, (
                f"The database {METADATA_DATABASE} holds the sync of the instance {each.instance}, which is in state "
                f"{each.state.value}, so this instance cannot join it."
            )
    if instances[0] not in {each.instance for each in others}:
        # The coordinator has not been started yet, so the destination cannot hold any data of this sync.
        yield from emptiness_violations(found.occupied, ())
    different = differences(options, instances, others)
    if different:
        yield errors.DIFFERENT_START, described(different)
