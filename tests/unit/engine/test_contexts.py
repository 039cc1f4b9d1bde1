"""Code that reads an attribute of a field that a test did not provide must fail with the name of that field."""

from __future__ import annotations

import pytest

from syncsvc.tuning import Tuning
from tests.unit.engine.contexts import context_with


def test_the_use_of_a_missing_field_names_the_field() -> None:
    context = context_with(tuning=Tuning())
    assert context.tuning == Tuning()
    with pytest.raises(AssertionError, match="registry.reload"):
        context.registry.reload(None)  # type: ignore[arg-type]


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="tunnig"):
        context_with(tunnig=Tuning())
