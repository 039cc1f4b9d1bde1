"""The views that the sync has created. They are saved, because views have no UUID by which to recognise them."""

from __future__ import annotations

from collections.abc import Iterable

from syncsvc.metadata import Metadata
from syncsvc.saved.batches import delete_ids, delete_rows, newest_rows, save_rows
from verifier.cluster import rawbson
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Document
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken

# The metadata collection for the views that the sync has created.
VIEWS = "views"


class CreatedViews:
    """The saved names and definitions of the views that the sync creates; each is saved before the view is created.

    A view has several saved definitions if a DDL event has changed it and the new definition is already saved.
    """

    def __init__(self, metadata: Metadata, writer: ClusterWriter, stop: StopToken) -> None:
        self._metadata = metadata
        self._writer = writer
        self._stop = stop

    def add(self, views: Iterable[CollectionSpec]) -> None:
        """Save the names and definitions of these views. Raises the driver's errors."""
        save_rows(self._writer, self._metadata.name, VIEWS, map(_statement, views))

    def forget(self, name: Namespace) -> None:
        """Delete all saved definitions of the view with that name. Raises the driver's errors."""
        delete_ids(self._writer, self._metadata.name, VIEWS, [str(name)])

    def replace_all(self, views: Iterable[CollectionSpec]) -> None:
        """Replace all saved names and definitions with those of these views. Raises the driver's errors."""
        delete_rows(self._metadata, self._writer, VIEWS, {}, self._stop)
        self.add(views)

    def load(self) -> dict[Namespace, list[Document]]:
        """Return all definitions of each view, by the name of the view. Raises the driver's errors."""
        found = newest_rows(self._metadata, self._writer, VIEWS, self._stop)
        rows = map(rawbson.decode_definition, found)
        return {Namespace(*row["_id"].split(".", 1)): row["definitions"] for row in rows}


def _statement(view: CollectionSpec) -> Document:
    update = {"$addToSet": {"definitions": view.options}}
    return {"q": {"_id": str(view.namespace)}, "u": update, "upsert": True}
