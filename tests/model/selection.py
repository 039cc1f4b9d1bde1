"""Decides which namespaces the profile FILTERED selects, and names the collections of the profile SELECTED."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.operation import Document, Operation

# The filter selects nearly all collections of the first database, including the server's temporary collections, and a
# few collections of the second database.
FILTER: Document = {
    "includeNamespaces": [
        {"database": "m0"},
        {"databaseRegex": {"pattern": "^M1$", "options": "i"}, "collections": ["a", "k", "v", "x"]},
    ],
    "excludeNamespaces": [{"database": "m0", "collectionsRegex": {"pattern": "^[dw]$"}}],
}

# The collections whose documents are filtered in the profile SELECTED. They are never capped, and never views.
SELECTED = ("m0.a", "m0.b", "m1.a")


def selects(namespace: str) -> bool:
    database, _, collection = namespace.partition(".")
    if database == "m0":
        return collection not in ("d", "w")
    return database == "m1" and collection in ("a", "k", "v", "x")


def leaves(operation: Operation) -> bool:
    """Return whether the operation can rename a synced collection to a name that the filter excludes.

    Such a rename makes the sync fail. An `$out` and a rename across databases count, because the server first writes to
    a collection with a temporary name in the target database.
    """
    return any(
        _may_have_been_selected(source, target) and not selects(target)
        for command in operation.commands
        for source, target in _moves(command)
    )


def _moves(command: Document) -> Iterator[tuple[str, str]]:
    if "renameCollection" in command:
        yield command["renameCollection"], command["to"]
    for stage in command.get("pipeline", ()):
        if "$out" in stage:
            yield "", f"{stage['$out']['db']}.{stage['$out']['coll']}"


def _may_have_been_selected(source: str, target: str) -> bool:
    database, target_database = source.partition(".")[0], target.partition(".")[0]
    if database != target_database:
        return selects(f"{target_database}.temporary")
    return selects(source)
