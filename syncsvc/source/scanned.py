"""The collection that a scan reads, and the conditions that hold for all its reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bson.binary import Binary
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo.read_preferences import Primary

from verifier.cluster.connect import Client
from verifier.cluster.namespace import Namespace
from verifier.cluster.pinning import Pin, ServerMode
from verifier.cluster.rawcursor import FIRST_PAGE, PAGE_BYTES, RawCursor


@dataclass(frozen=True)
class ScannedCollection:
    """A collection of the source, and how scans read it.

    If `uuid` is None (servers before 6.0 accept no UUID), the collection is read by its name. All reads have the read
    concern majority, and see the source at the cluster time `not_before` or later, so that they see no data older than
    the start of the change stream. Each cursor is read on one member that suits `read_preference`. Only documents that
    match `query` are read; all documents if `query` is None. The first page has at most `first_page` documents, and
    later pages have about `page_bytes` bytes.
    """

    client: Client
    namespace: Namespace
    uuid: bytes | None
    not_before: Timestamp
    read_preference: ServerMode = field(default_factory=Primary)
    query: RawBSONDocument | None = None
    page_bytes: int = PAGE_BYTES
    first_page: int = FIRST_PAGE

    def open(self, namespace: Namespace, pin: Pin, **find: Any) -> RawCursor:
        """Return a new cursor over the collection, whose current name is `namespace`.

        `find` contains the other fields of the command `find`, such as `hint`. The cursor reads from the server of
        `pin`.
        """
        command: dict[str, Any] = {
            "find": namespace.collection,
            **find,
            "noCursorTimeout": True,
            "readConcern": {"level": "majority", "afterClusterTime": self.not_before},
        }
        if self.uuid is not None:
            command["collectionUUID"] = Binary(self.uuid, 4)
        return RawCursor(
            self.client,
            namespace.database,
            command,
            pin=pin,
            page_bytes=self.page_bytes,
            first_page=self.first_page,
        )
