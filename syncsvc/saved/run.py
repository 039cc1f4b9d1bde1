"""The record of a run: an immutable value with the state and the options of a sync, as one instance saves them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from bson.timestamp import Timestamp

from syncsvc import errors
from syncsvc.options import StartOptions
from syncsvc.principals.comparison import PrincipalCounts
from syncsvc.saved.journal import Journal
from syncsvc.saved.late_findings import LateFindings
from syncsvc.state import ACTIVE, Phase, State
from verifier.cluster.facts import ClusterFacts
from verifier.cluster.namespace import Namespace
from verifier.cluster.namespace_map import NamespaceMap
from verifier.cluster.times import Position
from verifier.runtime.errors import OperationError

# The maximum number of phases that a record lists. A sync has six if no commit is withdrawn and the sync is not
# reversed.
MOST_PHASES = 50
# The mongosh command that allows user writes to a cluster again; it needs the privilege setUserWriteBlockMode.
UNBLOCK = "db.adminCommand({setUserWriteBlockMode: 1, global: false})"


@dataclass(frozen=True)
class Failure:
    """The error that a run failed with: its name in the error table, and the full text.

    `elsewhere` is whether another instance failed with the error, and this instance stopped because of that. While the
    failure is shown but not saved, `saved_state` is the state in the saved record, in which a restart continues the
    sync; it is None once the failure itself is saved.
    """

    name: str
    description: str
    # False in records that earlier versions saved.
    elsewhere: bool = False
    saved_state: State | None = None

    @property
    def as_saved(self) -> Failure:
        return replace(self, saved_state=None)


@dataclass(frozen=True)
class PhaseBegin:
    """A phase, and when it began, in UNIX seconds by the clock of the process that began it."""

    phase: Phase
    at: float


@dataclass(frozen=True)
class RunRecord:
    """The saved state of one sync, as one instance knows it.

    The record stays on the cluster `home`, even after a reversal. Fields about work that the coordinator does once for
    all instances, such as `commit_time`, are set only in the record of the coordinator.
    """

    # The ID of the instance.
    instance: str
    # The random name of the only process that may save the record.
    owner: str
    state: State
    phase: Phase
    options: StartOptions
    # The IDs of the source and the destination of the start; the address of a cluster whose ID could not be read.
    identities: tuple[str, str]
    # The sessions of an engine's writes are derived from this UUID: see `syncsvc.saved.fence`.
    fence: UUID
    # The position at which the change events of the sync begin; None until it is known.
    start: Position | None = None
    # The position up to which change events are applied; None until it is known.
    position: Position | None = None
    # The cluster time of the source at the end of the copy or, in a reversed sync, at its start; None until then.
    copy_end: Timestamp | None = None
    # The commit applies all changes up to this cluster time of the source; None while it is not set.
    commit_time: Timestamp | None = None
    # The finished steps of the cut-over, in order.
    steps: tuple[str, ...] = ()
    # Whether users may write to the destination.
    can_write: bool = False
    # What the watch of the source after the commit has found; None until users may write to the destination, and if
    # there is no watch: on a follower, and if the source is blocked or an earlier version committed the sync.
    late_findings: LateFindings | None = None
    failure: Failure | None = None
    # How often the sync was reversed.
    reversals: int = 0
    # The position in the destination's change stream at which the next reversal begins; None until it is known.
    reverse_start: Position | None = None
    # The position in the former source's change stream at the commit before the newest reversal; None before the first
    # one, on a follower, and in records that earlier versions saved.
    committed: Position | None = None
    # The clusters on which this sync blocks user writes, and whether user writes were already blocked there before.
    found_blocked: Mapping[str, bool] = field(default_factory=dict)
    # The clusters whose balancer this sync has stopped, and whether it was on before.
    found_balancing: Mapping[str, bool] = field(default_factory=dict)
    # The IDs of all instances of the run, the coordinator first; empty if one instance runs alone.
    instances: tuple[str, ...] = ()
    # The resume token of the newest DDL event that this instance has reached; in the record of the coordinator, of the
    # newest DDL event that the coordinator has applied for all instances.
    barrier: str | None = None
    # In the record of a coordinator with followers: whether the lag and the verification allowed a commit when it last
    # checked. In other records, always False.
    caught_up: bool = False
    # Increases with each save.
    beat: int = 0
    # The numbers of an engine's writes begin with the epoch, which increases each time an engine is created: see
    # `syncsvc.saved.fence`.
    epoch: int = 0
    # Increases each time the sync is resumed after a saved failure. An instance with a lower number than another one
    # has not been resumed yet.
    attempt: int = 0
    # The numbers of three repair rounds: the newest one whose list of differences is saved, the newest one that this
    # instance has finished, and the newest one that all instances have finished.
    repair: int = 0
    repaired: int = 0
    repair_done: int = 0
    # How many repair rounds the current commit has begun.
    commit_repairs: int = 0
    # How many repairs users have requested, and for how many of them the list of differences is saved.
    repair_requests: int = 0
    repair_requests_met: int = 0
    # How many documents, and differences in definitions, are in the list of repairs.
    repaired_documents: int = 0
    repaired_definitions: int = 0
    # The results of the newest copy of users and roles, by a commit or on request; None until it is complete.
    principals: PrincipalCounts | None = None
    # The newest phases and when they began, the oldest first. Those before an upgrade may be missing.
    phases: tuple[PhaseBegin, ...] = ()
    # The journal of this instance; empty if the record was saved by a version without journals, or loaded without it.
    journal: Journal = Journal()

    @property
    def repair_requested(self) -> bool:
        return self.repair_requests_met < self.repair_requests

    @property
    def repairs_now(self) -> bool:
        """Return whether a repair of differences is requested or has begun, and is not complete yet.

        On a follower, a repair is complete when this instance has finished its own share.
        """
        done = self.repair_done if self.coordinates else self.repaired
        return self.repair_requested or done < self.repair

    @property
    def coordinator(self) -> str:
        """Return the ID of the coordinator: the instance that does the work needed only once for all instances."""
        return self.instances[0] if self.instances else self.instance

    @property
    def coordinates(self) -> bool:
        return self.coordinator == self.instance

    @property
    def all_copied(self) -> bool:
        """Return whether all instances have finished the copy, as far as this instance knows.

        In the phase INDEXING, an instance that does not coordinate still waits for the others. As `Phase.copied`, also
        true in a reversed sync, and during a reset.
        """
        return self.phase.copied and (self.coordinates or self.phase is not Phase.INDEXING)

    def is_past(self, time: Timestamp) -> bool:
        """Return whether this instance has applied all its events up to `time`, a cluster time of the source."""
        return self.position is not None and self.position.is_past(time)

    @property
    def is_reversed(self) -> bool:
        """Return whether the source of the start options is the destination now. Each reversal swaps the clusters."""
        return self.reversals % 2 == 1

    @property
    def source(self) -> str:
        """Return the name of the cluster that is read now."""
        return self.options.destination if self.is_reversed else self.options.source

    @property
    def destination(self) -> str:
        """Return the name of the cluster that is written now."""
        return self.options.source if self.is_reversed else self.options.destination

    @property
    def home(self) -> str:
        """Return the name of the cluster that holds the saved state: the destination of the start.

        A reversal swaps `source` and `destination`, but moves no saved state: all instances and restarted processes
        find it on this cluster in both directions. Only the event spool of a reversed sync is on the other cluster.
        """
        return self.options.destination

    @property
    def names(self) -> NamespaceMap:
        """Return the map from names on the cluster that is read now to names on the cluster that is written now."""
        return self.options.names.inverse if self.is_reversed else self.options.names

    @property
    def in_use(self) -> bool:
        """Return whether users may write to the destination of the start, or may have done so before a reversal."""
        return self.can_write or self.reversals > 0

    def has_blocked(self, cluster: str) -> bool:
        """Return whether this sync blocks user writes to this cluster, and the cluster allowed them before."""
        return self.found_blocked.get(cluster) is False

    def is_between(self, source: ClusterFacts, destination: ClusterFacts) -> bool:
        """Return whether these clusters are the source and the destination of the options."""
        pairs = zip(self.identities, (source, destination), strict=True)
        # Earlier versions could save the address of a cluster, although its user was allowed to read the ID.
        return all(saved in (facts.identity, facts.address) for saved, facts in pairs)

    def in_natural_order(self, name: Namespace) -> bool:
        """Return whether a collection is copied in natural order. `name` is its name on the current source."""
        # The option contains names on the first source, which is the destination after a reversal.
        first = self.names.to_destination(name) if self.is_reversed else name
        return self.options.in_natural_order(first)


def with_begin(record: RunRecord, phase: Phase, now: float) -> tuple[PhaseBegin, ...]:
    """Return the phases of a record that enters `phase` at `now`, with their begin times.

    The phases are unchanged if the record is already in `phase`. `now` is in UNIX seconds.
    """
    if record.phase is phase:
        return record.phases
    return (*record.phases, PhaseBegin(phase, now))[-MOST_PHASES:]


def refuse_in_use(record: RunRecord) -> None:
    """Raise OperationError DestinationInUse if users may write to the destination, or if the sync was reversed.

    After a reversal, users may have written to either cluster.
    """
    if record.in_use:
        users = "canWrite is true" if record.can_write else "the sync was reversed after a commit"
        raise OperationError(
            errors.DESTINATION_IN_USE,
            f"The sync cannot be reset: {users}, and {record.home} may hold user data.",
        )


def refuse_stopped(record: RunRecord) -> None:
    """Raise OperationError InvalidState if the run is paused, failed, committed, or being reset."""
    if record.state not in ACTIVE:
        raise OperationError(errors.INVALID_STATE, f"The sync is {record.state.value}.")


def refuse_resetting(record: RunRecord) -> None:
    """Raise OperationError InvalidState if the run is being reset."""
    if record.state is State.RESETTING:
        raise OperationError(errors.INVALID_STATE, "The sync is being reset.")
