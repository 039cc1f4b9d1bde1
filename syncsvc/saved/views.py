"""The views that the sync has created. They are saved, because views have no UUID by which to recognize them."""

from __future__ import annotations

from collections.abc import Iterable

from syncsvc.metadata import Metadata
from syncsvc.saved.rows import Rows
from verifier.cluster import rawbson
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Document
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken

# The metadata collection for the views that the sync has created.
VIEWS = "views"


class CreatedViews:
    """The saved names and definitions of the views that the sync creates; each is saved before the view is created.

    A view can have several saved definitions, for example if its definition changed on the source between two listings
    of the source. In a reversed sync, the views that its destination had before count as created by the sync.

    Every method raises the errors of `Rows`.
    """

    def __init__(self, metadata: Metadata, writer: ClusterWriter, stop: StopToken) -> None:
        self._rows = Rows(metadata, writer, VIEWS, stop)

    def add(self, views: Iterable[CollectionSpec]) -> None:
        """Save the names and definitions of these views."""
        self._rows.save(map(_statement, views))

    def forget(self, name: Namespace) -> None:
        """Delete all saved definitions of the view with that name."""
        self._rows.delete([str(name)])

    def replace_all(self, views: Iterable[CollectionSpec]) -> None:
        """Replace all saved names and definitions with those of these views."""
        self._rows.delete_all({})
        self.add(views)

    def load(self) -> dict[Namespace, list[Document]]:
        """Return all saved definitions of each view, by the name of the view."""
        rows = map(rawbson.decode_definition, self._rows.newest())
        return {Namespace(*row["_id"].split(".", 1)): row["definitions"] for row in rows}


def _statement(view: CollectionSpec) -> Document:
    update = {"$addToSet": {"definitions": view.options}}
    return {"q": {"_id": str(view.namespace)}, "u": update, "upsert": True}
