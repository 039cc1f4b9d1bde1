"""The saved rate limits of a sync: one document in the metadata, which all instances and standbys read and change.

Each change replaces the whole document, and saves a new random ID in its field `change`. The document is replaced only
if it still has the ID with which it was read. So concurrent changes of different fields are all kept, and a change that
the network delays until after another change has no effect.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from pymongo.errors import OperationFailure

from syncsvc.errors import INCOMPATIBLE_METADATA
from syncsvc.limits import Document, Limits, limits_of, merged
from syncsvc.metadata import Metadata
from verifier.cluster.failures import DUPLICATE_KEY
from verifier.cluster.newest import read_newest
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.errors import OperationError

LIMITS = "limits"
# The `_id` of the only document.
_KEY = "limits"


class LimitsStore:
    """Reads and changes the saved limits of a sync, in the metadata database of the sync.

    Every method raises OperationError IncompatibleMetadata if this version cannot read the saved limits; `change` may
    then have saved the change. Every method also raises the driver's errors.
    """

    def __init__(self, metadata: Metadata, writer: ClusterWriter) -> None:
        self._metadata = metadata
        self._writer = writer

    def load(self) -> Limits | None:
        """Return the saved limits, including all changes acknowledged before this call; None if none were saved."""
        return self._limits(read_newest(self._metadata.client, self._metadata.name, LIMITS, _KEY))

    def glance(self) -> Limits | None:
        """Return the saved limits with one plain read; None if no limits were saved.

        Unlike the result of `load`, the result may be out of date shortly after an election.
        """
        return self._limits(self._metadata[LIMITS].find_one({"_id": _KEY}))

    def change(self, changes: Document, initial: Document | None = None) -> Limits:
        """Change the saved limits that `changes` names, keep all other limits, and return the result.

        If no limits are saved yet, the limits in `initial` are changed and saved. Both arguments have the form of the
        body of `PATCH /api/v1/limits`.
        """
        change = uuid4().hex
        while True:
            found = self._metadata[LIMITS].find_one({"_id": _KEY}) or {}
            if found.get("change") != change:
                document = merged(found.get("limits", initial or {}), changes)
                if not self._replace(found.get("change"), change, document):
                    continue
                return self._read(document)
            return self._read(found["limits"])

    def _replace(self, before: str | None, change: str, document: dict[str, Any]) -> bool:
        """Save the limits `document` with the change ID `change`, if the saved change ID is still `before`.

        `before` is None if no limits are saved yet. If this returns True, the limits were saved. If it returns False,
        read the saved change ID again: either other limits were saved in the meantime, or a first attempt has saved
        these limits, and its reply was lost. Raises the driver's errors.
        """
        query = {"_id": _KEY, "change": before}
        saved = {"_id": _KEY, "change": change, "limits": document}
        statement = {"q": query, "u": saved, "upsert": before is None}
        reply = self._writer.run(self._metadata.name, {"update": LIMITS, "updates": [statement]})
        for error in reply.get("writeErrors", ()):
            # Another process has saved the first limits at the same moment; or this process has saved them, and the
            # reply was lost.
            if error["code"] != DUPLICATE_KEY:
                raise OperationFailure(error.get("errmsg", ""), error["code"], error)
        return bool(reply["n"] == 1)

    def _limits(self, document: Document | None) -> Limits | None:
        return None if document is None else self._read(document.get("limits"))

    def _read(self, document: Any) -> Limits:
        return _read(document, self._metadata.name)


def _read(document: Any, database: str) -> Limits:
    """Return the limits in `document`, which was saved in the metadata database named `database`.

    Raises OperationError IncompatibleMetadata if this version cannot read the document.
    """
    try:
        return limits_of(document)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise OperationError(
            INCOMPATIBLE_METADATA,
            f"The document with the limits in {database}.{LIMITS} cannot be read: {error!r}. If another version "
            "of syncsvc has saved it, use that version. Otherwise, delete this document: the sync then continues "
            "without limits.",
        ) from error
