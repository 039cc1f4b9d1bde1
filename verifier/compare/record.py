"""The saved record of a check (options, generation, progress, verdict), and its conversion to and from a document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from bson.timestamp import Timestamp

from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.namespace import Namespace
from verifier.cluster.times import Position
from verifier.compare.check_progress import Amounts, Outcome, Verdict
from verifier.compare.documents import Mode
from verifier.compare.errors import INCOMPATIBLE_METADATA
from verifier.compare.scope import Scope
from verifier.runtime.formats import Formats

# Formats before 2 were never released. The rows of tasks, rechecks and mismatches have no format number: reading must
# supply a default for a new field, and a row whose meaning changes must say so in a field of its own.
FORMATS = Formats(subject="The saved check", oldest=2, steps=(), unsupported=INCOMPATIBLE_METADATA)

# The maximum number of notes of a check: the record is saved often, and a server refuses one larger than 16 MB.
MOST_NOTES = 1000
_MORE_NOTES = (
    f"Only the first {MOST_NOTES:,} notes are kept; further notes are left out. The notes about documents that expire "
    "apply to every collection with expireAfterSeconds in its options or in an index."
)


# The maximum number of processes that the record of a check names.
MOST_PROCESSES = 50


class Side(Enum):
    SOURCE = "source"
    DESTINATION = "destination"


@dataclass(frozen=True)
class SideRecord:
    """The saved progress of a check through the change events of one cluster."""

    # The rechecks of all events up to this position are saved.
    position: Position
    # The cluster time at which user writes ended; None until that is known.
    end: Timestamp | None = None
    # The rechecks of all events up to this cluster time have been run.
    rechecked: Timestamp | None = None
    # The number of events by operation.
    seen: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SentCommand:
    """A command that the check has accepted. `at` is in UNIX seconds.

    `caller` is the name of the token, None without one. `address` is that of the client; None if the process sent the
    command itself.
    """

    name: str
    at: float
    caller: str | None = None
    address: str | None = None


@dataclass(frozen=True)
class CheckProcess:
    """A process that began to run the check at the time `at`, in UNIX seconds. `version` is that of the program."""

    at: float
    version: str
    host: str


@dataclass(frozen=True)
class Request:
    """The request for a check: what to compare, and how. `document_filter` is a query as BSON; None selects all."""

    scope: Scope = Scope()
    mode: Mode = Mode.BINARY
    document_filter: bytes | None = None


@dataclass(frozen=True)
class CheckRecord:
    """The saved state of one check."""

    # The ID of the process that may save the record.
    owner: str
    # The `Cluster.identity` of source and destination.
    identities: tuple[str, str]
    request: Request
    # When the check began, in UNIX seconds.
    started: float
    source: SideRecord
    destination: SideRecord
    # The number of the current generation.
    generation: int = 0
    # Whether all tasks of the current generation are saved, and whether all of them are done.
    planned: bool = False
    done: bool = False
    # The number of the first generation that began after all changes up to the end of user writes were known; None
    # until there is one. From this generation on, a difference that remains is a mismatch.
    last_from: int | None = None
    # The amounts of generation 0.
    first: Amounts | None = None
    # The number of documents that all later generations have compared.
    rechecked: int = 0
    # The durations of the most recent later generations.
    recheck_seconds: tuple[float, ...] = ()
    # Sentences about what was not compared, and why.
    notes: tuple[str, ...] = ()
    # When the check ended, in UNIX seconds.
    ended: float | None = None
    verdict: Verdict | None = None
    # When generation 0 was complete, in UNIX seconds.
    first_ended: float | None = None
    # The commands that the check has accepted, and the processes that have run it, the oldest first. Only checks of the
    # separate verifier have them.
    commands: tuple[SentCommand, ...] = ()
    processes: tuple[CheckProcess, ...] = ()

    @property
    def last(self) -> bool:
        """Return whether the current generation began after the last change of both clusters was known.

        From then on, every difference counts as a mismatch, until a later generation no longer finds it.
        """
        return self.last_from is not None

    @property
    def writes_off(self) -> bool:
        return self.source.end is not None and self.destination.end is not None

    def side(self, side: Side) -> SideRecord:
        return self.source if side is Side.SOURCE else self.destination

    def with_command(self, command: SentCommand | None) -> CheckRecord:
        """Return the record with this command added; the same record for None."""
        return self if command is None else replace(self, commands=(*self.commands, command))

    def with_process(self, process: CheckProcess | None) -> CheckRecord:
        """Return the record with this process added; the same record for None.

        A record keeps the first process, and the last ones.
        """
        if process is None:
            return self
        first, *later = (*self.processes, process)
        return replace(self, processes=(first, *later[-(MOST_PROCESSES - 1) :]))

    def with_notes(self, notes: Iterable[str]) -> CheckRecord:
        """Return the record with these notes added, except those that it already has.

        A record keeps at most `MOST_NOTES` notes; one more says that others are left out.
        """
        listed = tuple(dict.fromkeys((*self.notes, *notes)))
        if len(listed) > MOST_NOTES:
            listed = (*listed[:MOST_NOTES], _MORE_NOTES)
        return replace(self, notes=listed)


def as_document(record: CheckRecord) -> dict[str, Any]:
    request = record.request
    return {
        "format": FORMATS.current,
        "owner": record.owner,
        "identities": list(record.identities),
        "include": list(request.scope.namespaces.include),
        "exclude": list(request.scope.namespaces.exclude),
        "renamed": [[list(name), list(other)] for name, other in request.scope.renamed.items()],
        "mode": request.mode.value,
        "filter": request.document_filter,
        "started": record.started,
        "source": _side_document(record.source),
        "destination": _side_document(record.destination),
        "generation": record.generation,
        "planned": record.planned,
        "done": record.done,
        "lastFrom": record.last_from,
        "first": None if record.first is None else asdict(record.first),
        "rechecked": record.rechecked,
        "recheckSeconds": list(record.recheck_seconds),
        "notes": list(record.notes),
        "ended": record.ended,
        "verdict": _verdict_document(record.verdict),
        "firstEnded": record.first_ended,
        "commands": [asdict(each) for each in record.commands],
        "processes": [asdict(each) for each in record.processes],
    }


def _side_document(side: SideRecord) -> dict[str, Any]:
    return {
        "position": asdict(side.position),
        "end": side.end,
        "rechecked": side.rechecked,
        "seen": dict(side.seen),
    }


def _verdict_document(verdict: Verdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    reasons = list(verdict.reasons)
    return {"outcome": verdict.outcome.value, "reasons": reasons, "error": verdict.error}


def from_document(document: Mapping[str, Any]) -> CheckRecord:
    """Read a check of any supported format. Raise OperationError IncompatibleMetadata for others."""
    document = FORMATS.upgrade(document)
    source, destination = document["identities"]
    return CheckRecord(
        owner=document["owner"],
        identities=(source, destination),
        request=_request(document),
        started=document["started"],
        source=_side(document["source"]),
        destination=_side(document["destination"]),
        generation=document["generation"],
        planned=document["planned"],
        done=document["done"],
        last_from=document["lastFrom"],
        first=None if document["first"] is None else Amounts(**document["first"]),
        rechecked=document["rechecked"],
        recheck_seconds=tuple(document["recheckSeconds"]),
        notes=tuple(document["notes"]),
        ended=document["ended"],
        verdict=_verdict(document["verdict"]),
        # Earlier versions did not save these fields.
        first_ended=document.get("firstEnded"),
        commands=tuple(SentCommand(**each) for each in document.get("commands", ())),
        processes=tuple(CheckProcess(**each) for each in document.get("processes", ())),
    )


def _request(document: Mapping[str, Any]) -> Request:
    renamed = {Namespace(*name): Namespace(*other) for name, other in document["renamed"]}
    namespaces = NamespaceFilter(tuple(document["include"]), tuple(document["exclude"]))
    return Request(Scope(namespaces, renamed), Mode(document["mode"]), document["filter"])


def _side(document: Mapping[str, Any]) -> SideRecord:
    return SideRecord(
        position=Position(**document["position"]),
        end=document["end"],
        rechecked=document["rechecked"],
        seen=document["seen"],
    )


def _verdict(document: Mapping[str, Any] | None) -> Verdict | None:
    if document is None:
        return None
    return Verdict(Outcome(document["outcome"]), tuple(document["reasons"]), document["error"])
