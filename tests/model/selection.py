"""The namespace filter of the profile FILTERED, and which namespaces it selects. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.operation import Document, Operation

# Nearly all of the first database, so that the server's temporary collections are selected; a few collections of the
# second one.
FILTER: Document = {
    "includeNamespaces": [
        {"database": "m0"},
        {"databaseRegex": {"pattern": "^M1$", "options": "i"}, "collections": ["a", "k", "v", "x"]},
    ],
    "excludeNamespaces": [{"database": "m0", "collectionsRegex": {"pattern": "^[dw]$"}}],
}


def selects(namespace: str) -> bool:
    database, _, collection = namespace.partition(".")
    if database == "m0":
        return collection not in ("d", "w")
    return database == "m1" and collection in ("a", "k", "v", "x")


def leaves(operation: Operation) -> bool:
    """Return whether the operation may rename a synced collection to a name that the filter excludes.

    That would make the sync fail. An `$out`, and a rename across databases, write to a collection with a temporary name
    in the target database first.
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
