"""The queries that select a part of the documents of single collections of the source.

Only the source's server evaluates a query: the query is added to each read of the collection there. All these reads
must select the same documents, at any time. So operators and variables are refused if their result depends on the time,
on chance, on the user, on an index or on scripting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure

from verifier.cluster import extended, failures, rawbson
from verifier.cluster.connect import Client
from verifier.cluster.namespace import Namespace
from verifier.cluster.reading import read
from verifier.cluster.specification import Document
from verifier.runtime.errors import ErrorKind, OperationError
from verifier.runtime.tasks import StopToken

DOCUMENT_FILTER_FAILED = ErrorKind(
    "DocumentFilterFailed",
    409,
    "A cluster cannot evaluate a query of documentFilter, or the filter of a check, for one of the documents.",
    "Find the document by the value or type in the server's message, and change or delete it on the cluster that the "
    "message names, if it names one.",
)

# The reasons why an operator cannot select documents, and the refused operators with their reasons.
_SCRIPT = "the operator runs JavaScript, which can be disabled on a server"
_INDEX = "the operator needs an index, and cannot be combined with a read in the order of _id"
_COMMAND = "the result of the operator depends on the command, not only on the document"
_CHANCE = "the result of the operator is random"
_REFUSED = {
    "$where": _SCRIPT,
    "$function": _SCRIPT,
    "$accumulator": _SCRIPT,
    "$text": _INDEX,
    "$near": _INDEX,
    "$nearSphere": _INDEX,
    "$geoNear": _INDEX,
    "$meta": _COMMAND,
    "$rand": _CHANCE,
    "$sampleRate": _CHANCE,
    "$createObjectId": _CHANCE,
    "$createUUID": _CHANCE,
}
_INTERNAL = "$_internal"
# The system variables that are constant or depend only on the document. All others depend on the time, the user or the
# command.
_OF_DOCUMENTS = {"ROOT", "CURRENT", "REMOVE", "DESCEND", "PRUNE", "KEEP"}


@dataclass(frozen=True)
class DocumentFilters:
    """Queries that select documents of the source, as BSON, by the name of the collection to which they apply.

    All documents of a collection without a query are selected.
    """

    queries: Mapping[Namespace, bytes] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.queries)

    def __contains__(self, source: Namespace) -> bool:
        """Return whether a query applies to the source's collection with this name."""
        return source in self.queries

    def of(self, source: Namespace) -> RawBSONDocument | None:
        """Return the query for the source's collection with this name; None if all of its documents are selected."""
        query = self.queries.get(source)
        return None if query is None else RawBSONDocument(query)

    def selects_alike(self, one: Namespace, other: Namespace) -> bool:
        """Return whether two names, such as those before and after a rename, have the same query, or both have none."""
        return self.queries.get(one) == self.queries.get(other)


def refusals(query: Any) -> Iterator[str]:
    """Yield a reason, without a final period, for each operator or variable that a document filter must not contain.

    `query` is a decoded query. Each reason is yielded once.
    """
    yield from dict.fromkeys(_refused_operators(query))


def _refused_operators(value: Any, in_expression: bool = False) -> Iterator[str]:
    if isinstance(value, str) and in_expression:
        yield from _refused_variable(value)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            if name in _REFUSED:
                yield f"{name} cannot select documents: {_REFUSED[name]}"
            elif name.startswith(_INTERNAL):
                yield f"{name} cannot select documents: it is an internal operator of the server"
            if not (in_expression and name == "$literal"):
                yield from _refused_operators(each, in_expression or name == "$expr")
    elif isinstance(value, list):
        for each in value:
            yield from _refused_operators(each, in_expression)


def _refused_variable(text: str) -> Iterator[str]:
    """Yield the reason why a document filter must not contain the string `text`; nothing if the string is allowed.

    The reason has no final period. System variables whose value does not come from the document, such as $$NOW, are
    refused.
    """
    if text.startswith("$$"):
        name = text[2:].partition(".")[0]
        if name[:1].isupper() and name not in _OF_DOCUMENTS:
            yield (
                f"$${name} cannot select documents: the value of this variable does not come from the document"
            )


def judging(filters: DocumentFilters, source: Namespace) -> AbstractContextManager[None]:
    """Convert a server's refusal of a command in the block to OperationError DocumentFilterFailed.

    The block only sends commands to the source, about its collection `source`. Nothing is converted if that collection
    has no query. All other driver errors, such as those that are retried, are raised unchanged.
    """
    return judging_as([name_of_query(source)] if source in filters else [])


@contextmanager
def judging_as(queries: Iterable[str]) -> Iterator[None]:
    """Convert refusals in the block as `judging` does. `queries` names the queries of the commands; it may be empty."""
    try:
        yield
    except OperationFailure as error:
        names = " or ".join(queries)
        if not names or failures.named_kind(error) is not None:
            raise
        raise OperationError(
            DOCUMENT_FILTER_FAILED,
            f"{names[0].upper()}{names[1:]} failed: {failures.with_command(error)}.",
        ) from error


def name_of_query(source: Namespace) -> str:
    """Return how messages name the query for the source's collection with this name."""
    return f"the query of documentFilter for {source}"


def bad_queries(
    client: Client, filters: DocumentFilters, stop: StopToken
) -> list[tuple[Namespace, str]]:
    """Return (collection, the server's error) for each query that the server of the source refuses.

    Temporary errors are retried. Raises the driver's other errors, and `Cancelled`.
    """
    found = ((name, refusal(client, name, query, stop)) for name, query in filters.queries.items())
    return [(name, text) for name, text in found if text is not None]


def refusal(client: Client, namespace: Namespace, query: bytes, stop: StopToken) -> str | None:
    """Return the server's error if the server cannot plan a find with this query in the collection; None if it can.

    Temporary errors are retried. Raises the driver's other errors, and `Cancelled`.
    """
    # Use $nor, in which servers refuse operators that sort, such as $near: these would conflict with our own sort.
    command: Document = {
        "explain": {"find": namespace.collection, "filter": {"$nor": [RawBSONDocument(query)]}},
        "verbosity": "queryPlanner",
    }
    try:
        # The reply quotes the query: do not decode it, because the driver may refuse its values.
        database, codec = client[namespace.database], rawbson.RAW_LENIENT
        read(lambda: database.command(command, codec_options=codec), stop)
    except OperationFailure as error:
        if failures.named_kind(error) is not None:
            raise
        return failures.text_of(error)
    return None


def text_of(query: bytes) -> str:
    """Return a query as canonical Extended JSON, from which `query_of` restores it."""
    return extended.canonical(rawbson.decode(query))


def query_of(text: str) -> bytes:
    """Return, as BSON, the query that `text_of` has converted to text."""
    return bson.encode(extended.read(text))


def rows_of(filters: DocumentFilters) -> list[dict[str, str]]:
    """Return the queries as rows to save or to show; `filters_of` restores them.

    Each row has the fields `database`, `collection` and `filter`, the query as canonical Extended JSON.
    """
    return [{**name._asdict(), "filter": text_of(query)} for name, query in filters.queries.items()]


def filters_of(rows: Iterable[Mapping[str, str]]) -> DocumentFilters:
    """Return the queries that `rows_of` has converted to rows."""
    return DocumentFilters(
        {Namespace(each["database"], each["collection"]): query_of(each["filter"]) for each in rows}
    )
