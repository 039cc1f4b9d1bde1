"""Replaces the names of collections in the pipeline of a view. The functions here have no side effects.

A pipeline is changed as BSON, so that every other value in it stays as it is. A stage that this module does not know is
refused, because it may refer to a collection that would not be renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from verifier.cluster import rawbson
from verifier.cluster.rawbson import Element, elements, int32

Rename = Callable[[str], str]
# Returns the new bytes of a value.
_Rewrite = Callable[[bytes, Element, Rename], bytes]


class NotRewritable(Exception):
    """Raised if a view's pipeline has an unexpected form, an unknown stage, or a name that cannot be replaced.

    The text is a clause without a full stop that says why.
    """


def rewritten(pipeline: Iterable[Mapping[str, Any]], rename: Rename) -> list[Mapping[str, Any]]:
    """Return the stages of the pipeline with every name of a collection replaced by `rename(name)`.

    Names in inner pipelines are replaced as well. Raises NotRewritable, and the errors of `rename`.
    """
    return [RawBSONDocument(_stage(_raw(each), rename), rawbson.RAW_LENIENT) for each in pipeline]


def _raw(stage: Mapping[str, Any]) -> bytes:
    return bytes(stage.raw) if isinstance(stage, RawBSONDocument) else bson.encode(stage)


def _stage(raw: bytes, rename: Rename) -> bytes:
    fields = list(elements(raw))
    names = [each.name.decode(errors="replace") for each in fields]
    if len(fields) != 1:
        raise NotRewritable(
            f"a stage of the view's pipeline must have one field, but has {len(names)}: [{', '.join(names)}]"
        )
    if fields[0].name in _WITHOUT_NAMES:
        return raw
    rewrite = _STAGES.get(fields[0].name)
    if rewrite is None:
        raise NotRewritable(
            f"the view's pipeline has the stage {names[0]}, which may refer to other collections"
        )
    return _rebuilt(raw, 0, lambda each: rewrite(raw, each, rename))


def _rebuilt(raw: bytes, at: int, value: Callable[[Element], bytes]) -> bytes:
    """Return the document or array at the offset `at`, with each value replaced by `value(field)`.

    A value keeps its type.
    """
    fields = [b"%c%b\0%b" % (each.kind, each.name, value(each)) for each in elements(raw, at)]
    return rawbson.document(*fields)


def _collection(raw: bytes, field: Element, rename: Rename) -> bytes:
    if field.kind != rawbson.STRING:
        raise NotRewritable(
            "the view's pipeline names a collection in a form other than a plain string"
        )
    try:
        name = raw[field.start + 4 : field.end - 1].decode()
    except UnicodeDecodeError as error:
        raise NotRewritable(
            "the view's pipeline names a collection by a text that is not valid UTF-8"
        ) from error
    text = rename(name).encode()
    return b"%b%b\0" % (int32(len(text) + 1), text)


def _pipeline(raw: bytes, field: Element, rename: Rename) -> bytes:
    def stage(each: Element) -> bytes:
        if each.kind != rawbson.DOCUMENT:
            raise NotRewritable("a stage of the view's pipeline is not a document")
        return _stage(raw[each.start : each.end], rename)

    if field.kind != rawbson.ARRAY:
        raise NotRewritable("the view's pipeline has an inner pipeline that is not an array")
    return _rebuilt(raw, field.start, stage)


def _fields(**known: _Rewrite) -> _Rewrite:
    """Return a function that rewrites some fields of an embedded document; other fields stay unchanged.

    `known` maps the name of each field to the function that rewrites it. The returned function raises NotRewritable if
    the value is not a document.
    """
    rewrites = {name.encode(): each for name, each in known.items()}

    def rewrite(raw: bytes, field: Element, rename: Rename) -> bytes:
        def value(each: Element) -> bytes:
            found = rewrites.get(each.name)
            return raw[each.start : each.end] if found is None else found(raw, each, rename)

        if field.kind != rawbson.DOCUMENT:
            raise NotRewritable(f"{field.name.decode()} in the view's pipeline is not a document")
        return _rebuilt(raw, field.start, value)

    return rewrite


def _foreign(raw: bytes, field: Element, rename: Rename) -> bytes:
    raise NotRewritable(
        f"the view's pipeline has the field `{field.name.decode()}`, which may name another database"
    )


def _union(raw: bytes, field: Element, rename: Rename) -> bytes:
    if field.kind == rawbson.STRING:
        return _collection(raw, field, rename)
    return _fields(coll=_collection, db=_foreign, pipeline=_pipeline)(raw, field, rename)


def _facets(raw: bytes, field: Element, rename: Rename) -> bytes:
    if field.kind != rawbson.DOCUMENT:
        raise NotRewritable("$facet in the view's pipeline is not a document")
    return _rebuilt(raw, field.start, lambda each: _pipeline(raw, each, rename))


_STAGES: dict[bytes, _Rewrite] = {
    b"$lookup": _fields(**{"from": _collection, "pipeline": _pipeline}),
    b"$graphLookup": _fields(**{"from": _collection}),
    b"$unionWith": _union,
    b"$facet": _facets,
}
# The stages that name no collection, whatever their values are.
_WITHOUT_NAMES = frozenset(
    f"${name}".encode()
    for name in (
        *("addFields", "bucket", "bucketAuto", "collStats", "count", "densify", "documents"),
        *("fill", "geoNear", "group", "indexStats", "limit", "match", "project", "redact"),
        *("replaceRoot", "replaceWith", "sample", "set", "setWindowFields", "skip", "sort"),
        *("sortByCount", "unset", "unwind"),
    )
)
