"""Every error has a kind, and the text of an error ends with the remedy of its kind, if there is one."""

from __future__ import annotations

from verifier.runtime.errors import INTERNAL_ERROR, ErrorKind, OperationError, describe

KIND = ErrorKind("Name", 409, "What it means.", "What to do.")


def test_the_text_of_an_error_ends_with_the_remedy() -> None:
    assert str(OperationError(KIND, "What happened.")) == "What happened. What to do."


def test_without_a_remedy_the_text_is_the_description() -> None:
    assert str(OperationError(ErrorKind("Name", 409, "", ""), "It failed.")) == "It failed."


def test_a_named_error_is_described_by_its_kind() -> None:
    assert describe(OperationError(KIND, "Why.")) == (KIND, "Why. What to do.")


def test_any_other_error_is_internal_and_says_its_type() -> None:
    kind, text = describe(KeyError("name"))
    assert kind is INTERNAL_ERROR
    assert text.startswith("KeyError: 'name'.") and text.endswith(INTERNAL_ERROR.remedy)
