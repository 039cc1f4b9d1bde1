"""What a collMod of the source changes: the true definition, and what of it shows on the destination at once. Pure.

The fields are those of the `modify` event (`operationDescription`), which are those of the command, with an index
always by its name.
"""

from __future__ import annotations

from dataclasses import replace

from verifier.cluster.specification import CollectionSpec, Document

# What the server stores where a collMod sets no limit on the number of documents.
_NO_MAXIMUM = 2147483647
# The fields that change what a stand-in stands in for: they are put into force at commit.
_DEFERRED = frozenset({"index", "cappedSize", "cappedMax", "expireAfterSeconds"})


def modified(definition: CollectionSpec, change: Document) -> CollectionSpec:
    """The definition after a collMod."""
    options = {**definition.options, **immediate(change)}
    if "timeseries" in change:
        # Without the span of the granularity before, which the server does not take with another one.
        before = definition.options["timeseries"]
        kept = {name: value for name, value in before.items() if name != "bucketMaxSpanSeconds"}
        options["timeseries"] = {**kept, **change["timeseries"]}
    if "cappedSize" in change:
        options["size"] = change["cappedSize"]
    if "cappedMax" in change:
        options["max"] = change["cappedMax"] if change["cappedMax"] > 0 else _NO_MAXIMUM
    if "expireAfterSeconds" in change:
        options["expireAfterSeconds"] = change["expireAfterSeconds"]
    if options.get("expireAfterSeconds") == "off":
        del options["expireAfterSeconds"]
    indexes = dict(definition.indexes)
    index = change.get("index", {})
    if index.get("name") in indexes:
        indexes[index["name"]] = _modified_index(indexes[index["name"]], index)
    return replace(definition, options=options, indexes=indexes)


def immediate(change: Document) -> Document:
    """The part of a collMod that is carried out on the destination at once; as options, too."""
    return {name: value for name, value in change.items() if name not in _DEFERRED}


def _modified_index(index: Document, change: Document) -> Document:
    changed = {**index, **change}
    if changed.get("unique"):
        # The server takes the preparation away when the index has become unique.
        changed.pop("prepareUnique", None)
    return {
        name: value
        for name, value in changed.items()
        if value is not False or name not in ("hidden", "prepareUnique", "unique")
    }
