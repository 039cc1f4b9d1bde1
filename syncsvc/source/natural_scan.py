"""Reads one collection in natural order, and can resume after an interruption.

Natural order needs no sampling, keeps the order of capped collections, and reads the disk sequentially.

A resume token contains a record ID (`$_requestResumeToken`, `$_resumeAfter` of `find`), and record IDs differ between
the members of a replica set: a token is valid only on the copy of the data where it was made. If it is not certain that
the token is still valid, the collection is copied again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bson.timestamp import Timestamp
from pymongo.database import Database
from pymongo.errors import OperationFailure, PyMongoError

from syncsvc.source.scanned import ScannedCollection
from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.cluster.namespace import Namespace
from verifier.cluster.pinning import Pin
from verifier.cluster.rawcursor import Page, RawCursor, resilient_pages
from verifier.cluster.renamed import follow_renames
from verifier.runtime.retry import Temporary
from verifier.runtime.tasks import StopToken

# A resume point may be at most this many server starts old.
_MOST_STARTS = 100
_UNSETTLED = " unsettled"


@dataclass(frozen=True)
class ResumePoint:
    """The point from which a scan in natural order continues: the server's resume token, and the origin of the token.

    `origin` names the copy of the data on which the record ID in the token is valid: a result of `Origin.name`.
    """

    token: dict[str, Any]
    origin: str


@dataclass(frozen=True)
class Origin:
    """The copy of the data on one member of a replica set, on which record IDs are valid.

    `member` is the address of the member and the ID of its initial sync. `starts` are the IDs of the starts of its
    server, the newest first, from a list that the server keeps in its data files (`local.startup_log`). If the data
    files are replaced by an older snapshot or by the files of another member, the list lacks the start in which the
    resume point was made. A member that was seeded with the files of another member has the other member's list, but a
    different address.

    After a crash, a server goes back to its last checkpoint and gives newer documents other record IDs. A resume point
    is settled if a checkpoint contains all writes up to the time `not_before` of the scan; the copy may miss later
    writes, because they come from the change stream. An unsettled resume point is valid only until the server starts
    again.
    """

    member: str
    starts: tuple[str, ...]

    def name(self, settled: bool) -> str:
        """Return the text to save with a new resume point as its origin.

        `settled` says whether the resume point is settled, that is, stays valid after a crash of the server.
        """
        return f"{self.member} {self.starts[0]}{'' if settled else _UNSETTLED}"

    def confirms(self, name: str) -> bool:
        """Return whether it is certain that record IDs with the origin `name` still refer to the same documents."""
        settled = {f"{self.member} {each}" for each in self.starts}
        return name in settled or name == self.name(settled=False)


def scan_origin(client: Client, pin: Pin) -> Origin | None:
    """Return the origin of record IDs on the member that `pin` selects; None for a mongos, which has no record IDs.

    Raises the driver's errors.
    """
    with pin.held():
        hello = client.admin.command("hello", read_preference=pin.read_preference)
        if hello.get("msg") == "isdbgrid":
            return None
        local = client.get_database("local", read_preference=pin.read_preference)
        return Origin(f"{hello['me']} {_initial_sync(local)}", tuple(_starts(local, hello)))


def _initial_sync(local: Database[dict[str, Any]]) -> str:
    """Return the ID of the member's initial sync; empty if there was none, or if the user may not read the ID."""
    try:
        found = local["replset.initialSyncId"].find_one()
    except OperationFailure:
        found = None
    return "" if found is None else bytes(found["_id"]).hex()


def _starts(local: Database[dict[str, Any]], hello: Mapping[str, Any]) -> list[str]:
    """Return the IDs of the last starts of the server, at most 100, the newest first.

    If the server's log of starts is empty, or the user may not read it, return only the ID of the server's process.
    """
    try:
        log = local.startup_log.find({}, {"pid": 1})
        found = list(log.sort("$natural", -1).limit(_MOST_STARTS))
    except OperationFailure:
        found = []
    starts = [f"{each['_id']} {each['pid']}" for each in found]
    return starts or [str(hello["topologyVersion"]["processId"])]


class NaturalScan:
    """One pass over a collection in natural order, from its beginning or from a resume point. It follows renames.

    The scan calls `at_beginning` each time before it reads the first page of the collection.
    """

    def __init__(
        self,
        scanned: ScannedCollection,
        resume_point: ResumePoint | None,
        stop: StopToken,
        at_beginning: Callable[[], None] = lambda: None,
    ) -> None:
        self._scanned = scanned
        self._namespace = scanned.namespace
        self._resume_point = resume_point
        self._stop = stop
        self._at_beginning = at_beginning
        self._origin: Origin | None = None
        self._settled = False
        self._pin = Pin()

    def pages(self) -> Iterator[tuple[Page, ResumePoint | None]]:
        """Yield each page with the resume point after the page.

        The resume point is None if the server returns no resume token, and if the collection is read through mongos.
        The scan begins again with the first page if its resume point is lost (the record was deleted) or not certainly
        valid (for example, another member is read), and if a capped collection has overwritten the position of the
        cursor. Raises CollectionGone and the driver's errors.
        """
        return follow_renames(self._namespace, self._pages)

    def _pages(self, namespace: Namespace) -> Iterator[tuple[Page, ResumePoint | None]]:
        self._namespace = namespace
        for page in resilient_pages(self._open, self._classify, self._stop):
            self._resume_point = self._point(page)
            yield page, self._resume_point

    def _point(self, page: Page) -> ResumePoint | None:
        if page.resume is None or self._origin is None:
            return None
        # Do not check the checkpoint after the first page, because most collections have no other page.
        self._settled = self._settled or (self._resume_point is not None and self._is_settled())
        return ResumePoint(page.resume, self._origin.name(self._settled))

    def _is_settled(self) -> bool:
        """Return whether a checkpoint of the server contains all writes up to `not_before`; False if unknown."""
        try:
            with self._pin.held():
                status = self._scanned.client.admin.command(
                    "replSetGetStatus", read_preference=self._pin.read_preference
                )
        except PyMongoError:
            return False
        checkpoint: Timestamp | None = status.get("lastStableRecoveryTimestamp")
        return checkpoint is not None and checkpoint >= self._scanned.not_before

    def _open(self) -> RawCursor:
        # Read the origin and all pages from one member: after an election in between, record IDs would have the wrong
        # origin.
        self._pin = Pin(read_preference=self._scanned.read_preference)
        self._origin = scan_origin(self._scanned.client, self._pin)
        self._settled = False
        if self._resume_point is not None and not (
            self._origin is not None and self._origin.confirms(self._resume_point.origin)
        ):
            self._resume_point = None
        find: dict[str, Any] = {"hint": {"$natural": 1}}
        if self._scanned.query is not None:
            find["filter"] = self._scanned.query
        if self._origin is not None:
            find["$_requestResumeToken"] = True
        if self._resume_point is not None and self._resume_point.token["$recordId"] is not None:
            find["$_resumeAfter"] = self._resume_point.token
        else:
            self._at_beginning()
        return self._scanned.open(self._namespace, self._pin, **find)

    def _classify(self, error: BaseException) -> Temporary | None:
        if failures.code_of(error) == failures.KEY_NOT_FOUND and self._resume_point is not None:
            self._resume_point = None
            return failures.again(error)
        if failures.code_of(error) == failures.CAPPED_POSITION_LOST:
            # The capped collection has overwritten the position of the cursor.
            self._resume_point = None
            return failures.again(error)
        return failures.lost_cursor(error)
