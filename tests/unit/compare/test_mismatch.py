"""A mismatch is a sentence."""

from __future__ import annotations

import pytest

from verifier.cluster.namespace import Namespace
from verifier.compare.mismatch import Difference, Mismatch


@pytest.mark.parametrize(
    "difference, detail, text",
    [
        (Difference.MISSING, "", "shop.orders: index a_1 is missing on destination"),
        (Difference.EXTRA, "", "shop.orders: index a_1 is extra on destination"),
        (Difference.CONTENT, "1, 2", "shop.orders: index a_1 is different (1, 2)"),
    ],
)
def test_a_mismatch_is_a_sentence(difference: Difference, detail: str, text: str) -> None:
    assert str(Mismatch(Namespace("shop", "orders"), difference, "index a_1", detail)) == text
