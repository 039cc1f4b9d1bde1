"""The schema of the request that starts a check."""

from __future__ import annotations

from verifier.cluster.document_filter_schema import QueryField, document_filters
from verifier.cluster.remap_schema import remap_field
from verifier.runtime.schemas import Strict


class CheckSchema(Strict):
    """The body of `POST /api/v1/check`."""

    filter = QueryField(
        metadata={
            "type": "object",
            "description": "A filter in MongoDB Extended JSON; only documents that match it are compared.",
        }
    )
    namespaceRemap = remap_field(
        "The collections, views and databases of the source that have another name on the destination. After a sync "
        "with namespaceRemap, use the value of its start request, with from and to swapped if the source of the check "
        "is the destination of that request."
    )
    documentFilter = document_filters(
        "The queries that select the documents of single collections of the source. For each of these collections, "
        "the destination must contain exactly the documents that match."
    )
