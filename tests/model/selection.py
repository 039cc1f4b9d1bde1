"""The filter of the filtered profile, and what it means. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.operation import Document, Operation

# Of the first database nearly all, so that temporary collections of the server are selected; of the second, a few.
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
    """Whether a collection may leave the selection by this operation, which fails a sync.

    Results and what comes from another database have a temporary name first, in the database where they end.
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
