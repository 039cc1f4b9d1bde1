"""Compares definitions: which collections and views exist, their options, their indexes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Document, same_document, same_index
from verifier.compare.mismatch import Aspect, DefinitionMismatch, Difference


def compare_definitions(
    expected: Iterable[CollectionSpec], actual: Iterable[CollectionSpec]
) -> list[DefinitionMismatch]:
    """Every difference between what should be on the destination and what is there."""
    wanted = {spec.namespace: spec for spec in expected}
    found = {spec.namespace: spec for spec in actual}
    mismatches: list[DefinitionMismatch] = []
    for namespace in sorted({*wanted, *found}):
        mismatches.extend(_compare(namespace, wanted.get(namespace), found.get(namespace)))
    return mismatches


def _compare(
    namespace: Namespace, wanted: CollectionSpec | None, found: CollectionSpec | None
) -> Iterator[DefinitionMismatch]:
    if wanted is None and found is not None:
        detail = f"a {found.kind.value}"
        yield DefinitionMismatch(namespace, Difference.EXTRA, Aspect.EXISTENCE, detail=detail)
    elif found is None and wanted is not None:
        detail = f"a {wanted.kind.value}"
        yield DefinitionMismatch(namespace, Difference.MISSING, Aspect.EXISTENCE, detail=detail)
    elif wanted is not None and found is not None:
        if wanted.kind is not found.kind:
            detail = f"a {wanted.kind.value} on the source, a {found.kind.value} on the destination"
            yield DefinitionMismatch(namespace, Difference.CONTENT, Aspect.KIND, detail=detail)
            return
        yield from _compare_parts(namespace, Aspect.OPTION, wanted.options, found.options)
        yield from _compare_parts(namespace, Aspect.INDEX, wanted.indexes, found.indexes)


def _compare_parts(
    namespace: Namespace, aspect: Aspect, wanted: Document, found: Document
) -> Iterator[DefinitionMismatch]:
    for name in sorted({*wanted, *found}):
        if name not in found:
            yield DefinitionMismatch(namespace, Difference.MISSING, aspect, name)
        elif name not in wanted:
            yield DefinitionMismatch(namespace, Difference.EXTRA, aspect, name)
        elif not _equal(aspect, wanted[name], found[name]):
            detail = f"{wanted[name]} expected, {found[name]} found"
            yield DefinitionMismatch(namespace, Difference.CONTENT, aspect, name, detail)


def _equal(aspect: Aspect, wanted: object, found: object) -> bool:
    if aspect is Aspect.INDEX and isinstance(wanted, dict) and isinstance(found, dict):
        return same_index(wanted, found)
    return same_document(wanted, found)
