"""Computes the effects of a collMod on the source: the new definition to save, and the fields to apply immediately.

A `change` contains the fields of the `modify` event (`operationDescription`). These equal the fields of the command
collMod, except that an index is always given by name. The functions here have no side effects.
"""

from __future__ import annotations

from dataclasses import replace

from verifier.cluster.specification import CollectionSpec, Document, without

# The option `max` that the server stores when a collMod removes the limit on the number of documents.
_NO_MAXIMUM = 2147483647
# The collMod fields that set no collection option, but an internal flag of the server about the buckets.
_NO_OPTIONS = frozenset({"timeseriesBucketsMayHaveMixedSchemaData"})
# The options that determine the buckets of a time-series collection.
_BUCKETING = frozenset({"granularity", "bucketMaxSpanSeconds", "bucketRoundingSeconds"})
# The fields that take effect only at the commit: until then, the stand-in definition has other values.
_DEFERRED = frozenset({"index", "cappedSize", "cappedMax", "expireAfterSeconds"})


def modified(definition: CollectionSpec, change: Document) -> CollectionSpec:
    """Return the definition that a collection has after the collMod `change`, which was run on the source."""
    options = {**definition.options, **without(immediate(change), _NO_OPTIONS)}
    if "timeseries" in change:
        options["timeseries"] = _bucketed(definition.options["timeseries"], change["timeseries"])
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
    """Return the fields of a collMod that take effect on the destination at once; the others wait for the commit.

    Except for time-series collections, each returned field has the name and the value of the option that it sets.
    """
    return {name: value for name, value in change.items() if name not in _DEFERRED}


def _bucketed(before: Document, change: Document) -> Document:
    """Return the option `timeseries` after a collMod.

    `before` is the current option, and `change` is the field `timeseries` of the collMod. A granularity replaces a
    custom bucket span (bucketMaxSpanSeconds and bucketRoundingSeconds), and vice versa: `create` refuses both together.
    """
    span, rounding = change.get("bucketMaxSpanSeconds"), change.get("bucketRoundingSeconds")
    if "granularity" not in change and (span is None or span != rounding):
        # Servers accept different values only if these are the values of the current granularity.
        return before
    return {**without(before, _BUCKETING), **change}


def _modified_index(index: Document, change: Document) -> Document:
    changed = {**index, **change}
    if changed.get("unique"):
        # The server removes prepareUnique when the index becomes unique.
        changed.pop("prepareUnique", None)
    if changed.pop("forceNonUnique", False):
        # `forceNonUnique` is not an option of the index: it only makes a unique index an ordinary one.
        changed.pop("unique", None)
        changed.pop("prepareUnique", None)
    return {
        name: value
        for name, value in changed.items()
        if value is not False or name not in ("hidden", "prepareUnique", "unique")
    }
