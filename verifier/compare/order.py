"""Decides which of two keys comes first in the index on `_id`.

The order of strings depends on the collation of the index, so the order of two keys can be uncertain.
"""

from __future__ import annotations

from typing import Any, Protocol

from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure

from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.cluster.keys import canonical, canonical_id, depends_on_collation, id_element
from verifier.cluster.specification import Document


class Order(Protocol):
    """An order of keys. Each key is a document with only an `_id`."""

    def __call__(self, first: bytes, second: bytes) -> bool:
        """Return whether the first key certainly comes before the second one."""


def simple_order(first: bytes, second: bytes) -> bool:
    """Return whether the first key comes before the second one in an index with the simple collation."""
    return canonical_id(first) < canonical_id(second)


def any_order(first: bytes, second: bytes) -> bool:
    """Return whether the first key comes before the second one in every collation; False if that is uncertain.

    For values that may contain strings, only the order of the types is certain.
    """
    forms = []
    for key in (first, second):
        element = id_element(key)
        form = canonical(key, element)
        forms.append(form[:1] if depends_on_collation(element) else form)
    return forms[0] < forms[1]


class CollatedOrder:
    """The order of keys in an index on `_id` with the given collation.

    Asks the server for the order of two keys that may contain strings. A server before 5.1 does not support this query,
    so the order of such keys is uncertain there. Raises the driver's errors.
    """

    def __init__(self, client: Client, collation: Document) -> None:
        self._client = client
        self._collation = collation

    def __call__(self, first: bytes, second: bytes) -> bool:
        elements = id_element(first), id_element(second)
        ranks = [canonical(key, each)[0] for key, each in zip((first, second), elements)]
        if ranks[0] != ranks[1] or not depends_on_collation(elements[0]):
            return any_order(first, second)
        return self._compare_on_server(first, second)

    def _compare_on_server(self, first: bytes, second: bytes) -> bool:
        keys = {"first": first, "second": second}
        document = {name: {"$literal": RawBSONDocument(key)} for name, key in keys.items()}
        command: dict[str, Any] = {
            "aggregate": 1,
            "pipeline": [
                {"$documents": [document]},
                {"$project": {"order": {"$cmp": ["$first", "$second"]}}},
            ],
            "collation": self._collation,
            "cursor": {},
        }
        try:
            reply = self._client.admin.command(command)
        except OperationFailure as error:
            # Servers before 5.1 do not know $documents.
            if error.code != failures.UNKNOWN_STAGE:
                raise
            return any_order(first, second)
        return bool(reply["cursor"]["firstBatch"][0]["order"] < 0)
