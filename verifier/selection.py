"""Converts the options that select namespaces to a `Scope`. The functions here have no side effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any

from marshmallow import fields, validate

from verifier.cluster.filter_schema import NamespaceFilterSchema
from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.namespace import LONGEST_DATABASE, NOT_IN_DATABASES, Namespace
from verifier.cluster.specification import Document
from verifier.compare.scope import NamespacePair, Scope
from verifier.runtime import strict_json
from verifier.runtime.errors import OperationError
from verifier.runtime.schemas import Strict, load

# Databases with this prefix contain no user data: they are neither copied nor compared. --metaDBName must have this
# prefix, so that --clean never drops user data.
_OF_TOOLS = "__mdb_internal"

_WAYS = ("verifyAll", "includeNamespaces", "srcNamespace")


class _Filters(Strict):
    """The schema of the options that select namespaces, after they were converted to filter elements."""

    includeNamespaces = fields.List(
        fields.Nested(NamespaceFilterSchema), validate=validate.Length(min=1)
    )
    excludeNamespaces = fields.List(fields.Nested(NamespaceFilterSchema))
    srcNamespace = fields.List(fields.Nested(NamespaceFilterSchema))
    dstNamespace = fields.List(fields.Nested(NamespaceFilterSchema))


def read_scope(options: Mapping[str, Any]) -> Scope:
    """Return the scope that the options select, without the database that stores the state of the check.

    `options` maps the names of options to their values. Raises ValueError if options are invalid. Validation stops at
    the first step that finds violations, and the error lists the violations of this step only.
    """
    own = options["metaDBName"]
    _raise([*_contradictions(options), *_bad_database(own)])
    sources, destinations = (_names(options[name]) for name in ("srcNamespace", "dstNamespace"))
    filters = {
        name: _json(name, options[name]) for name in ("includeNamespaces", "excludeNamespaces")
    }
    elements = {"srcNamespace": sources, "dstNamespace": destinations}
    filters |= {name: [*map(_element, names)] for name, names in elements.items()}
    loaded = _load({name: each for name, each in filters.items() if options[name] is not None})
    pairs = [*map(NamespacePair, sources, destinations or sources)]
    _raise([*_mispaired(sources, destinations), *_collisions(pairs)])
    include = loaded.get("includeNamespaces") or loaded["srcNamespace"]
    exclude = [*loaded.get("excludeNamespaces", ()), {"database": own}]
    renamed = {source: destination for source, destination in pairs if source != destination}
    return Scope(NamespaceFilter(tuple(include), tuple(exclude)), renamed)


def _raise(violations: list[str]) -> None:
    if violations:
        raise ValueError("; ".join(violations))


def _contradictions(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield an error unless exactly one option selects namespaces.

    Also yield an error for each option that cannot be combined with the selecting option.
    """
    ways = [f"--{name}" for name in _WAYS if options[name] not in (None, False, [])]
    if not ways:
        yield "no namespaces are selected: add --verifyAll, --includeNamespaces or --srcNamespace"
    if len(ways) > 1:
        yield f"{' and '.join(ways)} cannot be combined: use only one of them"
    if options["excludeNamespaces"] is not None and ways == ["--srcNamespace"]:
        yield (
            "--excludeNamespaces cannot be combined with --srcNamespace: replace --srcNamespace with --verifyAll or "
            "--includeNamespaces"
        )
    if options["dstNamespace"] and not options["srcNamespace"]:
        yield "--dstNamespace requires --srcNamespace with the names on the source, in the same order"


def _bad_database(name: str) -> Iterator[str]:
    if not name or len(name.encode()) > LONGEST_DATABASE or NOT_IN_DATABASES & {*name}:
        yield f"--metaDBName: {name!r} is not a valid database name"
    elif not name.startswith(_OF_TOOLS):
        yield f"--metaDBName: {name!r} must begin with {_OF_TOOLS}, so that it is not mistaken for a user database"


def _json(name: str, text: str | None) -> Any:
    try:
        return None if text is None else strict_json.read(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--{name} cannot be read as JSON: {error}") from error


def _names(texts: list[str]) -> list[Namespace]:
    """Parse names of databases and collections. Raise ValueError for a name like `shop.`.

    For a database, return a Namespace whose collection is empty.
    """
    for text in texts:
        if text.endswith(".") and text.count(".") == 1:
            raise ValueError(f"{text} is neither database.collection nor a database")
    return [Namespace(*text.partition(".")[::2]) for text in texts]


def _element(name: Namespace) -> Document:
    """Return the filter element that selects this collection, or this whole database."""
    whole = {"database": name.database}
    return {**whole, "collections": [name.collection]} if name.collection else whole


def _load(filters: Mapping[str, Any]) -> dict[str, Any]:
    try:
        loaded: dict[str, Any] = load(_Filters(), filters)
    except OperationError as error:
        raise ValueError(error.description) from error
    return loaded


def _mispaired(sources: list[Namespace], destinations: list[Namespace]) -> Iterator[str]:
    if destinations and len(sources) != len(destinations):
        yield (
            f"the numbers of names differ ({len(sources)} in --srcNamespace, {len(destinations)} in --dstNamespace): "
            "give the same number, because the names are paired by position"
        )
    for source, destination in zip(sources, destinations, strict=False):
        if bool(source.collection) != bool(destination.collection):
            yield f"{_shown(source)} and {_shown(destination)}: a database can only be paired with a database"


def _collisions(pairs: list[NamespacePair]) -> Iterator[str]:
    """Yield an error for every two pairs of names that contradict each other.

    Two pairs contradict each other if their names on the destination overlap, or if the destination name of a renamed
    pair overlaps with the source name of the other pair. A database overlaps with all of its collections.
    """
    for (number, one), (later, other) in permutations(enumerate(pairs), 2):
        if number < later and _overlap(one.destination, other.destination):
            yield (
                f"{_shown(one.source)} and {_shown(other.source)} would overlap on the destination: select only one "
                "of them, or correct --dstNamespace"
            )
        elif one.source != one.destination and _overlap(one.destination, other.source):
            yield (
                f"{_shown(one.source)} cannot be paired with {_shown(one.destination)}, because the latter "
                f"name overlaps with {_shown(other.source)} in --srcNamespace"
            )


def _overlap(one: Namespace, other: Namespace) -> bool:
    same_database = one.database == other.database
    return same_database and (
        one.collection == other.collection or not one.collection or not other.collection
    )


def _shown(name: Namespace) -> str:
    return str(name).removesuffix(".")
