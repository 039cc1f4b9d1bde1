"""The filters that select the namespaces of a sync or a verification.

A filter is converted to one match expression, which a server always evaluates: for the listing, for the change stream
and for single names. So the patterns (`$regex`) of the filter mean the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo.errors import OperationFailure

from verifier.cluster.connect import Client
from verifier.cluster.namespace import Namespace
from verifier.cluster.reading import read
from verifier.cluster.specification import Document
from verifier.runtime.tasks import StopToken

# The most names in one query, which must stay below 16 MB. A name has at most 255 bytes.
_NAMES_A_QUERY = 10_000
# Error codes of a server for a pattern or its options: an invalid regular expression, an unknown option, a null
# character.
_BAD_PATTERN_CODES = (51091, 51108, 2)


@dataclass(frozen=True)
class NamespaceFilter:
    """A filter of namespaces: the elements of `includeNamespaces` and `excludeNamespaces` in a request.

    An empty `include` includes everything. Namespaces that an element of `exclude` matches are always left out.
    """

    include: Sequence[Document] = ()
    exclude: Sequence[Document] = ()

    def expression(self, database: str, collection: str) -> Document | None:
        """Return the match expression of the filter; None if the filter matches everything.

        `database` and `collection` are the names of the document fields that hold the two names to match.
        """
        parts: list[Document] = []
        if self.include:
            parts.append({"$or": [_element(each, database, collection) for each in self.include]})
        if self.exclude:
            parts.append({"$nor": [_element(each, database, collection) for each in self.exclude]})
        return {"$and": parts} if parts else None

    def elements(self) -> Iterator[tuple[str, Document]]:
        """Yield (path, element) for each element of the filter.

        A path is the place in a request, such as `includeNamespaces[0]`.
        """
        lists = {"includeNamespaces": self.include, "excludeNamespaces": self.exclude}
        for name, elements in lists.items():
            for number, element in enumerate(elements):
                yield f"{name}[{number}]", element

    def patterns(self) -> Iterator[tuple[str, Document]]:
        """Yield (path, pattern) for each regular expression of the filter.

        A path is the place in a request, such as `includeNamespaces[0].databaseRegex`.
        """
        for path, element in self.elements():
            for field in ("databaseRegex", "collectionsRegex"):
                if field in element:
                    yield f"{path}.{field}", element[field]


def _element(element: Document, database: str, collection: str) -> Document:
    fits: list[Document] = []
    if "database" in element:
        fits.append({database: element["database"]})
    if "databaseRegex" in element:
        fits.append({database: _regex(element["databaseRegex"])})
    named: list[Document] = []
    if "collections" in element:
        named.append({collection: {"$in": list(element["collections"])}})
    if "collectionsRegex" in element:
        named.append({collection: _regex(element["collectionsRegex"])})
    return {"$and": [*fits, {"$or": named}] if named else fits}


def _regex(pattern: Document) -> Document:
    return {"$regex": pattern["pattern"], "$options": pattern.get("options", "")}


def condition(matched: Document) -> Document:
    """Convert a match expression to the aggregation expression that is true for the same documents.

    The match expression may contain $and, $or and $nor, and compare fields by $in, $nin, $regex or a value. In each
    document, a compared field must hold a string or be missing.
    """
    ((name, value),) = matched.items()
    if name in ("$and", "$or"):
        return {name: [*map(condition, value)]}
    if name == "$nor":
        return {"$not": [{"$or": [*map(condition, value)]}]}
    match value:
        case {"$in": listed}:
            return {"$in": [f"${name}", {"$literal": listed}]}
        case {"$nin": listed}:
            return {"$not": [condition({name: {"$in": listed}})]}
        case {"$regex": pattern}:
            options, regex = value.get("$options", ""), {"$literal": pattern}
            return {"$regexMatch": {"input": f"${name}", "regex": regex, "options": options}}
    return {"$eq": [f"${name}", {"$literal": value}]}


class Selection:
    """A namespace filter that the server of `client` evaluates. The server must support `$documents` (5.1 or newer).

    Temporary errors of the driver are retried.
    """

    def __init__(self, namespaces: NamespaceFilter, client: Client, stop: StopToken) -> None:
        self._expression = namespaces.expression("database", "collection")
        self._client = client
        self._stop = stop

    def of(self, namespaces: Iterable[Namespace]) -> set[Namespace]:
        """Return the `namespaces` that the filter selects. Raises errors that are not temporary, and `Cancelled`."""
        listed = list(namespaces)
        if self._expression is None:
            return set(listed)
        selected: set[Namespace] = set()
        for start in range(0, len(listed), _NAMES_A_QUERY):
            names = [each._asdict() for each in listed[start : start + _NAMES_A_QUERY]]
            rows = _matching(self._client, names, self._expression, self._stop)
            selected.update(Namespace(**row) for row in rows)
        return selected

    def selects(self, namespace: Namespace) -> bool:
        return bool(self.of([namespace]))


def _matching(
    client: Client, documents: list[Document], expression: Document, stop: StopToken
) -> list[dict[str, Any]]:
    pipeline: list[Document] = [{"$documents": documents}, {"$match": expression}]
    return read(lambda: list(client.admin.aggregate(pipeline)), stop)


def bad_patterns(client: Client, namespaces: NamespaceFilter, stop: StopToken) -> list[str]:
    """Return a message for each pattern that the server refuses: the path of its field, and the server's error.

    Temporary errors are retried. Raises the driver's other errors, and `Cancelled`.
    """
    reasons = [(field, _refusal(client, pattern, stop)) for field, pattern in namespaces.patterns()]
    return [f"{field}: {reason}" for field, reason in reasons if reason is not None]


def _refusal(client: Client, pattern: Document, stop: StopToken) -> str | None:
    try:
        _matching(client, [{"name": ""}], {"name": _regex(pattern)}, stop)
    except OperationFailure as error:
        if error.code not in _BAD_PATTERN_CODES:
            raise
        return str((error.details or {}).get("errmsg", error)).strip()
    return None
