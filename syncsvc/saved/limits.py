"""The saved limits of a sync: one document in the metadata, which all instances and standbys read and change.

A change replaces the whole document under a new random name, `change`, and only if the document still is the one that
was read. So concurrent changes of different fields are all kept, and a change that the network delays until after
another one matches nothing.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from pymongo.errors import OperationFailure

from syncsvc.errors import INCOMPATIBLE_METADATA
from syncsvc.limits import Document, Limits, limits_of, merged
from syncsvc.saved.run import METADATA_DATABASE
from verifier.cluster.connect import Client
from verifier.cluster.failures import DUPLICATE_KEY
from verifier.cluster.newest import read_newest
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.errors import OperationError

LIMITS = "limits"
# The `_id` of the only document.
_KEY = "limits"


class LimitsStore:
    """The saved limits on the cluster that holds the saved state.

    All calls raise OperationError IncompatibleMetadata, and the driver's errors.
    """

    def __init__(self, client: Client, writer: ClusterWriter) -> None:
        self._client = client
        self._writer = writer

    def load(self) -> Limits | None:
        """Return the saved limits, with all changes acknowledged before this call; None if there are none."""
        return _limits(read_newest(self._client, METADATA_DATABASE, LIMITS, _KEY))

    def glance(self) -> Limits | None:
        """Return the saved limits as `load` does, but at once; they may be out of date just after an election."""
        return _limits(self._client[METADATA_DATABASE][LIMITS].find_one({"_id": _KEY}))

    def change(self, changes: Document) -> Limits:
        """Change some of the saved limits (see `limits.merged`), and return all of them."""
        change = uuid4().hex
        while True:
            found = self._client[METADATA_DATABASE][LIMITS].find_one({"_id": _KEY}) or {}
            if found.get("change") != change:
                document = merged(found.get("limits", {}), changes)
                if not self._replace(found.get("change"), change, document):
                    continue
                return _read(document)
            return _read(found["limits"])

    def _replace(self, before: str | None, change: str, document: dict[str, Any]) -> bool:
        """Save a document in place of the one with the name `before`; return whether it was still saved."""
        query = {"_id": _KEY, "change": before}
        saved = {"_id": _KEY, "change": change, "limits": document}
        statement = {"q": query, "u": saved, "upsert": before is None}
        reply = self._writer.run(METADATA_DATABASE, {"update": LIMITS, "updates": [statement]})
        for error in reply.get("writeErrors", ()):
            # Another process has saved the first limits at the same moment; or this one has, and its reply was lost.
            if error["code"] != DUPLICATE_KEY:
                raise OperationFailure(error.get("errmsg", ""), error["code"], error)
        return bool(reply["n"] == 1)


def _limits(document: Document | None) -> Limits | None:
    return None if document is None else _read(document.get("limits"))


def _read(document: Any) -> Limits:
    """Return the saved limits. Raises OperationError IncompatibleMetadata if this version cannot read them."""
    try:
        return limits_of(document)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise OperationError(
            INCOMPATIBLE_METADATA,
            f"The saved limits in {METADATA_DATABASE}.{LIMITS} cannot be read: {error!r}. If no other version has "
            "saved them, delete that document: the sync then continues without limits.",
        ) from error
