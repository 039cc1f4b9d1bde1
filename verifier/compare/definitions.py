"""Compares definitions: which collections and views exist, their options, their indexes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Document, same_document, same_index
from verifier.compare.mismatch import Difference, Mismatch


def compare_definitions(
    expected: Iterable[CollectionSpec], actual: Iterable[CollectionSpec]
) -> list[Mismatch]:
    """Every difference between what should be on the destination and what is there."""
    wanted = {spec.namespace: spec for spec in expected}
    found = {spec.namespace: spec for spec in actual}
    mismatches: list[Mismatch] = []
    for namespace in sorted({*wanted, *found}):
        mismatches.extend(_compare(namespace, wanted.get(namespace), found.get(namespace)))
    return mismatches


def _compare(
    namespace: Namespace, wanted: CollectionSpec | None, found: CollectionSpec | None
) -> Iterator[Mismatch]:
    if wanted is None and found is not None:
        yield Mismatch(namespace, Difference.EXTRA, f"the {found.kind.value}")
    elif found is None and wanted is not None:
        yield Mismatch(namespace, Difference.MISSING, f"the {wanted.kind.value}")
    elif wanted is not None and found is not None:
        if wanted.kind is not found.kind:
            detail = f"a {wanted.kind.value} on the source, a {found.kind.value} on the destination"
            yield Mismatch(namespace, Difference.CONTENT, "its kind", detail)
            return
        yield from _compare_parts(namespace, "option", wanted.options, found.options)
        yield from _compare_parts(namespace, "index", wanted.indexes, found.indexes)


def _compare_parts(
    namespace: Namespace, what: str, wanted: Document, found: Document
) -> Iterator[Mismatch]:
    for name in sorted({*wanted, *found}):
        subject = f"{what} {name}"
        if name not in found:
            yield Mismatch(namespace, Difference.MISSING, subject)
        elif name not in wanted:
            yield Mismatch(namespace, Difference.EXTRA, subject)
        elif not _equal(what, wanted[name], found[name]):
            detail = f"{wanted[name]} expected, {found[name]} found"
            yield Mismatch(namespace, Difference.CONTENT, subject, detail)


def _equal(what: str, wanted: object, found: object) -> bool:
    if what == "index" and isinstance(wanted, dict) and isinstance(found, dict):
        return same_index(wanted, found)
    return same_document(wanted, found)
