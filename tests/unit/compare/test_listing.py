"""The separate verifier refuses names and texts that are not valid UTF-8, because it cannot distinguish them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from bson.raw_bson import RawBSONDocument

from verifier.cluster import rawbson
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Document, Kind
from verifier.compare import listing
from verifier.compare.errors import TEXT_NOT_COMPARABLE
from verifier.compare.listing import Listing
from verifier.compare.scope import Scope
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

# A validator whose text is not UTF-8. Servers return it, and the comparison uses it, without decoding it.
_VALIDATOR = RawBSONDocument(rawbson.single(rawbson.STRING, b"a", b"\2\0\0\0\xff\0"))


@pytest.fixture
def subject() -> Listing:
    facts = SimpleNamespace(unknown_options=frozenset(), offers=lambda feature: True)
    cluster: Any = SimpleNamespace(client=None, facts=facts)
    return Listing(cluster, cluster, Scope(), StopToken())


def _listed(monkeypatch: pytest.MonkeyPatch, *collections: str) -> None:
    names = [Namespace("d", each) for each in collections]
    monkeypatch.setattr(listing, "names_on", lambda client, stop: names)


def test_a_collection_whose_name_is_not_utf_8_is_refused(
    monkeypatch: pytest.MonkeyPatch, subject: Listing
) -> None:
    """Servers do not find the collection by its decoded name, so it would silently not be compared."""
    _listed(monkeypatch, "c", "a\N{REPLACEMENT CHARACTER}")
    with pytest.raises(OperationError, match="d.a\N{REPLACEMENT CHARACTER}") as raised:
        subject.pairs()
    assert raised.value.kind is TEXT_NOT_COMPARABLE


def test_valid_names_of_any_language_are_compared(
    monkeypatch: pytest.MonkeyPatch, subject: Listing
) -> None:
    _listed(monkeypatch, "c", "größe", "数据")
    assert {each.source.collection for each in subject.pairs()} == {"c", "größe", "数据"}


@pytest.mark.parametrize("index", [{"name": "a\ufffd"}, {"name": "a", "key": {"\ufffd": 1}}])
def test_a_definition_with_a_text_that_is_not_utf_8_is_refused(
    subject: Listing, index: Document
) -> None:
    """Two different texts would be equal once decoded, so a difference would not be found."""
    definition = CollectionSpec(Namespace("d", "c"), Kind.COLLECTION, indexes={"a": index})
    with pytest.raises(OperationError, match="d.c: a name or text") as raised:
        subject.expected(definition)
    assert raised.value.kind is TEXT_NOT_COMPARABLE


def test_texts_in_expressions_are_compared_as_bytes(subject: Listing) -> None:
    definition = CollectionSpec(
        Namespace("d", "c"), Kind.COLLECTION, options={"validator": _VALIDATOR}
    )
    assert subject.expected(definition) == definition
