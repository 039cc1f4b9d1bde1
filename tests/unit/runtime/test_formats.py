"""Saved documents are upgraded step by step; a document in a format without a step is refused."""

from __future__ import annotations

from typing import Any

import pytest
from bson.int64 import Int64

from verifier.runtime.errors import ErrorKind, OperationError
from verifier.runtime.formats import Formats

UNSUPPORTED = ErrorKind("Unsupported", 409, "It is of another version.", "Start that one.")


def append(letter: str) -> Any:
    return lambda document: {**document, "steps": document["steps"] + letter}


FORMATS = Formats("The document", 3, (append("a"), append("b")), UNSUPPORTED)


@pytest.mark.parametrize("number, steps", [(3, "ab"), (4, "b"), (5, ""), (Int64(4), "b")])
def test_the_upgrade_steps_after_a_format_are_run(number: int, steps: str) -> None:
    document = {"format": number, "steps": "", "kept": 1}
    assert FORMATS.upgrade(document) == {"format": 5, "steps": steps, "kept": 1}
    assert document["format"] == number


@pytest.mark.parametrize(
    "number, reason",
    [
        (6, "has format 6: the format is of a newer version.* up to 5. Start the newer version"),
        (2, "has format 2: this version of the program reads the formats 3 to 5"),
        (None, "has format None: this version of the program reads"),
        ("4", "has format 4: this version of the program reads"),
    ],
)
def test_unsupported_formats_are_refused(number: object, reason: str) -> None:
    with pytest.raises(OperationError, match=reason) as raised:
        FORMATS.upgrade({"format": number})
    assert raised.value.kind is UNSUPPORTED


def test_a_document_without_a_format_is_refused() -> None:
    with pytest.raises(OperationError, match="format None"):
        FORMATS.upgrade({})
