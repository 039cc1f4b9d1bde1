"""Reads all documents of one collection in natural order, resumably.

Natural order needs no sampling, keeps the order of capped collections, does not bracket by the type of `_id`, and reads
the disk in sequence. A resume token is a record id (`$_requestResumeToken`, `$_resumeAfter` of `find`), and record ids
differ between the members of a replica set: a token counts only on the copy of the data where it was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bson.binary import Binary
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.cluster.namespace import Namespace
from verifier.cluster.rawcursor import Page, RawCursor, resilient_pages
from verifier.cluster.renamed import follow_renames
from verifier.runtime.retry import Temporary
from verifier.runtime.tasks import StopToken


@dataclass(frozen=True)
class ResumePoint:
    """After which record to go on, and on which copy of the data that record id means something."""

    token: dict[str, Any]
    origin: str


def scan_origin(client: Client) -> str:
    """Names the primary's copy of the data: the id of its initial sync, else of its server process.

    Empty for a router, which knows no record ids: what is read through it begins anew after a failure.
    """
    if client.is_mongos:
        return ""
    try:
        initial_sync = client.local["replset.initialSyncId"].find_one()
    except OperationFailure:
        initial_sync = None
    if initial_sync is not None:
        return str(bytes(initial_sync["_id"]).hex())
    return str(client.admin.command("hello")["topologyVersion"]["processId"])


class Scan:
    """One pass over a collection, from its beginning or from a resume point, whatever its name becomes meanwhile.

    Without its UUID, which servers before 6.0 do not take, it is the collection that has the name.
    Reads with majority at or after `not_before`, so that nothing older than the change stream's start is seen.
    """

    def __init__(
        self,
        client: Client,
        namespace: Namespace,
        uuid: bytes | None,
        not_before: Timestamp,
        resume: ResumePoint | None,
        stop: StopToken,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._uuid = uuid
        self._not_before = not_before
        self._place = resume
        self._origin = ""
        self._opened = False
        self._stop = stop

    def pages(self) -> Iterator[tuple[Page, ResumePoint | None]]:
        """Each page with the point after it. Raises CollectionGone and the driver's errors.

        After a resume point is lost (its record deleted, another primary), pages come from the beginning again.
        """
        return follow_renames(self._namespace, self._pages)

    def _pages(self, namespace: Namespace) -> Iterator[tuple[Page, ResumePoint | None]]:
        self._namespace = namespace
        for page in resilient_pages(self._open, self._judge, self._stop):
            if self._opened:
                self._confirm_origin()
            self._place = None if page.resume is None else ResumePoint(page.resume, self._origin)
            yield page, self._place

    def _confirm_origin(self) -> None:
        """Look at the origin again after the first page: an election in between would mislabel the record ids."""
        self._opened = False
        if scan_origin(self._client) != self._origin:
            # No page of that cursor is good; a point of an origin that nobody has starts the collection again.
            self._origin = "unknown"

    def _open(self) -> RawCursor:
        self._opened = True
        self._origin = scan_origin(self._client)
        if self._place is not None and self._place.origin != self._origin:
            self._place = None
        command: dict[str, Any] = {
            "find": self._namespace.collection,
            "hint": {"$natural": 1},
            "noCursorTimeout": True,
            "readConcern": {"level": "majority", "afterClusterTime": self._not_before},
        }
        if self._origin:
            command["$_requestResumeToken"] = True
        if self._uuid is not None:
            command["collectionUUID"] = Binary(self._uuid, 4)
        if self._place is not None and self._place.token["$recordId"] is not None:
            command["$_resumeAfter"] = self._place.token
        return RawCursor(self._client, self._namespace.database, command)

    def _judge(self, error: BaseException) -> Temporary | None:
        if failures.code_of(error) == failures.KEY_NOT_FOUND and self._place is not None:
            self._place = None
            return failures.again(error)
        if failures.code_of(error) == failures.CAPPED_POSITION_LOST:
            # A capped collection wrote over the place where the cursor was.
            self._place = None
            return failures.again(error)
        # A collection that was dropped or renamed under its cursor: opening it again by UUID tells which.
        return failures.lost_cursor(error)
