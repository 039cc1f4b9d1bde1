"""The views that the sync has created on the destination. They are saved because views have no UUID."""

from __future__ import annotations

from collections.abc import Iterable

from syncsvc.saved.batches import save_rows
from syncsvc.saved.run import METADATA_DATABASE, VIEWS
from verifier.cluster import rawbson
from verifier.cluster.connect import Client
from verifier.cluster.namespace import Namespace
from verifier.cluster.newest import newest_time, read_after
from verifier.cluster.reading import read
from verifier.cluster.specification import CollectionSpec, Document
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken


class CreatedViews:
    """The saved names and definitions of the views that the sync creates; each is saved before the view is created.

    A view that was changed has several definitions.
    """

    def __init__(self, client: Client, writer: ClusterWriter, stop: StopToken) -> None:
        self._client = client
        self._writer = writer
        self._stop = stop

    def add(self, views: Iterable[CollectionSpec]) -> None:
        """Save the names and definitions of these views. Raises the driver's errors."""
        save_rows(self._writer, VIEWS, map(_statement, views))

    def load(self) -> dict[Namespace, list[Document]]:
        """Return all definitions of each view, by the name of the view. Raises the driver's errors."""
        rows = map(rawbson.decode_definition, read(self._read, self._stop))
        return {Namespace(*row["_id"].split(".", 1)): row["definitions"] for row in rows}

    def _read(self) -> list[bytes]:
        time = newest_time(lambda command: self._writer.run(METADATA_DATABASE, command), VIEWS)
        return read_after(time, self._client, METADATA_DATABASE, VIEWS)


def _statement(view: CollectionSpec) -> Document:
    update = {"$addToSet": {"definitions": view.options}}
    return {"q": {"_id": str(view.namespace)}, "u": update, "upsert": True}
