"""The saved record of a check (options, generation, progress, verdict), and its conversion to and from a document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from bson.timestamp import Timestamp

from verifier.cluster.document_filters import DocumentFilters, filters_of, rows_of
from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.namespace import Namespace
from verifier.cluster.times import Position
from verifier.compare.check_progress import Amounts, Outcome, Verdict
from verifier.compare.documents import Mode
from verifier.compare.errors import INCOMPATIBLE_METADATA
from verifier.compare.scope import Scope
from verifier.runtime.formats import Formats


def _allow_source_filters(document: dict[str, Any]) -> dict[str, Any]:
    """Upgrade a saved check from format 2 to 3. Format 3 may contain queries for single collections of the source.

    The document stays the same, because the field with the queries is optional.
    """
    return document


# A check without queries for single collections is saved in this format, so that earlier versions can continue the
# check. A check with such queries is not, because earlier versions would ignore the queries.
_WITHOUT_SOURCE_FILTERS = 2
# Formats before 2 were never released. The rows of tasks, rechecks and mismatches have no format number: reading must
# supply a default for a new field, and a row whose meaning changes must say so in a separate field.
FORMATS = Formats(
    subject="The saved check",
    oldest=2,
    steps=(_allow_source_filters,),
    unsupported=INCOMPATIBLE_METADATA,
)

# The maximum number of notes of a check: the record is saved often, and a server refuses one larger than 16 MB.
MOST_NOTES = 1000
_MORE_NOTES = (
    f"Only the first {MOST_NOTES:,} notes of the check are kept; further notes are left out. The kept notes about "
    "documents that expire apply to every collection whose documents expire (TTL)."
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

    `caller` is the name of the client's token; None without a token. `address` is the address of the client; None if
    the process sent the command itself.
    """

    name: str
    at: float
    caller: str | None = None
    address: str | None = None


@dataclass(frozen=True)
class CheckProcess:
    """A process that began to run the check at `at` (UNIX seconds). `version` is the version of the program."""

    at: float
    version: str
    host: str


@dataclass(frozen=True)
class Request:
    """The request for a check: what to compare, and how. `document_filter` is a query as BSON, or None.

    `remapped` is True if namespaces are renamed because of the command that began the check, not because of an option.
    `source_filters` contains queries for single collections of the source.
    """

    scope: Scope = Scope()
    mode: Mode = Mode.BINARY
    document_filter: bytes | None = None
    remapped: bool = False
    source_filters: DocumentFilters = DocumentFilters()

    def selects_documents(self, source: Namespace) -> bool:
        """Return whether a query restricts the documents to compare in this collection of the source."""
        return self.document_filter is not None or source in self.source_filters


@dataclass(frozen=True)
class CheckRecord:
    """The saved record of one check."""

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
    # Whether all planned tasks of the current generation are saved (tasks for ranges are added later), and whether all
    # tasks are done.
    planned: bool = False
    done: bool = False
    # The number of the first generation that began after all changes up to the end of user writes were read; None
    # until there is one. From this generation on, a difference that remains is a mismatch.
    last_from: int | None = None
    # The amounts of generation 0; None until it is complete.
    first: Amounts | None = None
    # The number of documents that the complete generations after generation 0 have compared.
    rechecked: int = 0
    # The durations of the most recent generations after generation 0, in seconds.
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
        """Return whether the current generation can give the verdict.

        It can if all changes up to the end of user writes were read before the generation began. Each difference that
        such a generation finds counts as a mismatch, unless a later generation no longer finds it.
        """
        return self.last_from is not None

    @property
    def all_again(self) -> bool:
        """Return whether this is the first generation after all changes up to the end of user writes were read.

        This generation compares all definitions and all numbers of documents again.
        """
        return self.generation == self.last_from

    @property
    def writes_off(self) -> bool:
        return self.source.end is not None and self.destination.end is not None

    def side(self, side: Side) -> SideRecord:
        return self.source if side is Side.SOURCE else self.destination

    def with_command(self, command: SentCommand | None) -> CheckRecord:
        """Return the record with this command added to its list of commands; unchanged if `command` is None."""
        return self if command is None else replace(self, commands=(*self.commands, command))

    def with_process(self, process: CheckProcess | None) -> CheckRecord:
        """Return the record with this process added to its list of processes; unchanged if `process` is None.

        A record keeps the first process and the most recent ones, `MOST_PROCESSES` in total.
        """
        if process is None:
            return self
        first, *later = (*self.processes, process)
        return replace(self, processes=(first, *later[-(MOST_PROCESSES - 1) :]))

    def with_notes(self, notes: Iterable[str]) -> CheckRecord:
        """Return the record with these notes added, without duplicates.

        A record keeps at most `MOST_NOTES` notes, and one more that says that notes were left out.
        """
        listed = tuple(dict.fromkeys((*self.notes, *notes)))
        if len(listed) > MOST_NOTES:
            listed = (*listed[:MOST_NOTES], _MORE_NOTES)
        return replace(self, notes=listed)


def as_document(record: CheckRecord) -> dict[str, Any]:
    request = record.request
    return {
        "format": FORMATS.current if request.source_filters else _WITHOUT_SOURCE_FILTERS,
        "owner": record.owner,
        "identities": list(record.identities),
        "include": list(request.scope.namespaces.include),
        "exclude": list(request.scope.namespaces.exclude),
        "renamed": [[list(name), list(other)] for name, other in request.scope.renamed.items()],
        "remapped": request.remapped,
        "mode": request.mode.value,
        "filter": request.document_filter,
        "sourceFilters": rows_of(request.source_filters),
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
    """Convert a saved document to a CheckRecord.

    Raises OperationError IncompatibleMetadata if this version does not support the format of the document.
    """
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
    return Request(
        Scope(namespaces, renamed),
        Mode(document["mode"]),
        document["filter"],
        # Earlier versions did not save this field.
        document.get("remapped", False),
        filters_of(document.get("sourceFilters", ())),
    )


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
