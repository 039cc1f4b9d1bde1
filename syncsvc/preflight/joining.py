"""Checks whether several instances may run a sync together, and whether this one may join a sync.

The functions here contact no cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

from syncsvc import errors
from syncsvc.metadata import DEFAULT_ID
from syncsvc.options import StartOptions
from syncsvc.preflight.findings import Findings
from syncsvc.preflight.rules import emptiness_violations
from syncsvc.saved.peers import described, differences
from syncsvc.saved.run import RunRecord
from syncsvc.state import State
from verifier.runtime.errors import Violation


def instances_of(options: StartOptions, instance: str, found: Findings) -> tuple[str, ...]:
    """Return the IDs of all instances that run the sync, the coordinator first; empty if there is only one.

    `instance` is the ID of this instance. For a sharded source, the IDs are the names of its shards, but an instance
    whose ID is not one of these names runs alone. For a replica set, the IDs are those in the start option `instances`.
    """
    source = found.source
    if source.is_sharded:
        names = source.shards if instance in source.shards else ()
    else:
        names = options.instances
    return names if len(names) > 1 else ()


def begun_by_others(
    instance: str, instances: tuple[str, ...], found: Findings
) -> tuple[RunRecord, ...]:
    """Return the saved run records of the other instances that have begun the sync which this instance starts.

    Return an empty tuple if none has begun it. `instance` is the ID of this instance, `instances` are the IDs of all
    instances. The records are also returned if the others were started with a different list of IDs, as long as one of
    the lists contains this instance. In this case, the start is refused later, with an error that names the difference.
    """
    names = {each.instance for each in found.runs}
    together = {*instances, *(name for each in found.runs for name in each.instances)}
    joins = names <= together and instance in together - names
    return found.runs if joins else ()


def instance_violations(
    options: StartOptions, instance: str, found: Findings
) -> Iterator[Violation]:
    """Yield the violations if the ID of this instance, the start option `instances` and the source do not match."""
    shards, requested = found.source.shards, options.instances
    if found.source.is_sharded and instance not in (DEFAULT_ID, *shards):
        yield errors.UNKNOWN_INSTANCE, (
            f"The --id of this instance is {instance}, but the shards of the source are "
            f"{', '.join(shards) or 'unknown'}."
        )
    if not requested:
        return
    if instance not in requested:
        yield errors.UNKNOWN_INSTANCE, (
            f"The --id of this instance is {instance}, but the option instances contains {', '.join(requested)}."
        )
    needed = instances_of(options, instance, found) or (instance,)
    if found.source.is_sharded and {*requested} != {*needed}:
        yield errors.INSTANCES_NOT_APPLICABLE, (
            f"The option instances contains {', '.join(requested)}, but for this sharded source and the --id "
            f"{instance}, it must be {', '.join(needed)}."
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
    identities = (each.identity or each.address for each in (found.source, found.destination))
    here = _between(*identities)
    for each in others:
        if not each.is_between(found.source, found.destination):
            yield errors.METADATA_LEFT_OVER, (
                f"The database {found.database} holds the metadata of the instance {each.instance}, which syncs "
                f"{_between(*each.identities)}. The requested sync is {here}."
            )
        if each.state not in (State.RUNNING, State.PAUSED):
            yield errors.METADATA_LEFT_OVER, (
                f"The database {found.database} holds the sync of the instance {each.instance}, which is in state "
                f"{each.state.value}, so this instance cannot join it."
            )
    if not any(each.coordinates for each in others):
        # The coordinator has not been started yet, so the destination cannot hold any data of this sync.
        yield from emptiness_violations(options, found)
    different = differences(options, instances, others)
    if different:
        yield errors.DIFFERENT_START, described(different)


def _between(source: str, destination: str) -> str:
    """Name the clusters of a sync by their IDs."""
    return f"from a cluster with the ID {source} to a cluster with the ID {destination}"
