"""Reads all documents of one collection in natural order, resumably.

Natural order needs no sampling, keeps the order of capped collections, is not split by the type of `_id`, and reads the
disk sequentially. A resume token is a record ID (`$_requestResumeToken`, `$_resumeAfter` of `find`), and record IDs
differ between the members of a replica set: a token is valid only on the copy of the data where it was made. When in
doubt, the collection is copied again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bson.binary import Binary
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure, PyMongoError

from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.cluster.namespace import Namespace
from verifier.cluster.pinning import Pin
from verifier.cluster.rawcursor import FIRST_PAGE, PAGE_BYTES, Page, RawCursor, resilient_pages
from verifier.cluster.renamed import follow_renames
from verifier.runtime.retry import Temporary
from verifier.runtime.tasks import StopToken

# A resume point may be at most this many server starts old.
_MOST_STARTS = 100
_UNSETTLED = " unsettled"


@dataclass(frozen=True)
class ResumePoint:
    """The record after which a scan continues: the server's resume token, and the origin of that token.

    `origin` names the copy of the data on which the record ID in the token is valid: a result of `Origin.name`.
    """

    token: dict[str, Any]
    origin: str


@dataclass(frozen=True)
class Origin:
    """The copy of the data on one member of a replica set, on which record IDs are valid.

    `member` is the address of the member and the ID of its initial sync. `starts` are IDs of the starts of its server,
    the newest first, from a list that the server keeps in its data files (`local.startup_log`). Data files that are
    replaced by an older snapshot, or by those of another member, contain another list, without the newest start. A
    member that is seeded with the files of another member has its list, but a different address.

    After a crash, a server goes back to its last checkpoint and gives newer documents other record IDs. A resume point
    is settled if a checkpoint contains everything that the copy must not miss. Other points are valid only until the
    server starts again.
    """

    member: str
    starts: tuple[str, ...]

    def name(self, settled: bool) -> str:
        """Return the text to save as the origin of a new resume point; `settled` is whether that point is settled."""
        return f"{self.member} {self.starts[0]}{'' if settled else _UNSETTLED}"

    def confirms(self, name: str) -> bool:
        """Return whether the record IDs of a resume point of the origin `name` still refer to the same documents."""
        settled = {f"{self.member} {each}" for each in self.starts}
        return name in settled or name == self.name(settled=False)


def scan_origin(client: Client) -> Origin | None:
    """Return the origin of the primary; None for a mongos, which has no record IDs. Raises the driver's errors."""
    if client.is_mongos:
        return None
    hello = client.admin.command("hello")
    return Origin(f"{hello['me']} {_initial_sync(client)}", tuple(_starts(client, hello)))


def _initial_sync(client: Client) -> str:
    """Return the ID of the member's initial sync; empty if it had none or the user may not read it."""
    try:
        found = client.local["replset.initialSyncId"].find_one()
    except OperationFailure:
        found = None
    return "" if found is None else bytes(found["_id"]).hex()


def _starts(client: Client, hello: Mapping[str, Any]) -> list[str]:
    """Return an ID of each start of the server, the newest first, at most `_MOST_STARTS`.

    Return only the ID of its process if the user may not read the log of its starts.
    """
    try:
        log = client.local.startup_log.find({}, {"pid": 1})
        found = list(log.sort("$natural", -1).limit(_MOST_STARTS))
    except OperationFailure:
        found = []
    starts = [f"{each['_id']} {each['pid']}" for each in found]
    return starts or [str(hello["topologyVersion"]["processId"])]


class NaturalScan:
    """One pass over a collection, from its beginning or from a resume point. It follows renames of the collection.

    If `uuid` is None, as for servers before 6.0, which accept no UUID, it reads the collection by its name. It reads
    with read concern majority at the source's cluster time `not_before` or later, so that it sees nothing older than
    the start of the change stream.
    """

    def __init__(
        self,
        client: Client,
        namespace: Namespace,
        uuid: bytes | None,
        not_before: Timestamp,
        resume_point: ResumePoint | None,
        stop: StopToken,
        page_bytes: int = PAGE_BYTES,
        first_page: int = FIRST_PAGE,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._uuid = uuid
        self._not_before = not_before
        self._resume_point = resume_point
        self._origin: Origin | None = None
        self._settled = False
        self._pin = Pin()
        self._stop = stop
        self._page_bytes = page_bytes
        self._first_page = first_page

    def pages(self) -> Iterator[tuple[Page, ResumePoint | None]]:
        """Yield each page with the resume point after it; None in place of the point if the server gives none.

        If a resume point is lost (its record was deleted, or the primary changed), all pages come again from the
        beginning. Raises CollectionGone and the driver's errors.
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
        # Not checked after the first page: most collections have no other.
        self._settled = self._settled or (self._resume_point is not None and self._is_settled())
        return ResumePoint(page.resume, self._origin.name(self._settled))

    def _is_settled(self) -> bool:
        """Return whether a checkpoint of the server has everything up to `not_before`; False if that is unknown."""
        try:
            with self._pin.held():
                status = self._client.admin.command("replSetGetStatus")
        except PyMongoError:
            return False
        checkpoint: Timestamp | None = status.get("lastStableRecoveryTimestamp")
        return checkpoint is not None and checkpoint >= self._not_before

    def _open(self) -> RawCursor:
        # One member for the whole scan: an election in between would give record IDs the wrong origin.
        self._pin = Pin()
        with self._pin.held():
            self._origin = scan_origin(self._client)
        self._settled = False
        if self._resume_point is not None and not (
            self._origin is not None and self._origin.confirms(self._resume_point.origin)
        ):
            self._resume_point = None
        command: dict[str, Any] = {
            "find": self._namespace.collection,
            "hint": {"$natural": 1},
            "noCursorTimeout": True,
            "readConcern": {"level": "majority", "afterClusterTime": self._not_before},
        }
        if self._origin is not None:
            command["$_requestResumeToken"] = True
        if self._uuid is not None:
            command["collectionUUID"] = Binary(self._uuid, 4)
        if self._resume_point is not None and self._resume_point.token["$recordId"] is not None:
            command["$_resumeAfter"] = self._resume_point.token
        return RawCursor(
            self._client,
            self._namespace.database,
            command,
            pin=self._pin,
            page_bytes=self._page_bytes,
            first_page=self._first_page,
        )

    def _classify(self, error: BaseException) -> Temporary | None:
        if failures.code_of(error) == failures.KEY_NOT_FOUND and self._resume_point is not None:
            self._resume_point = None
            return failures.again(error)
        if failures.code_of(error) == failures.CAPPED_POSITION_LOST:
            # The capped collection has overwritten the position of the cursor.
            self._resume_point = None
            return failures.again(error)
        return failures.lost_cursor(error)
