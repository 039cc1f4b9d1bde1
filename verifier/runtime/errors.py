"""The base of all errors that users see. Each has a name for programs, a description for people, and a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


@dataclass(frozen=True)
class ErrorKind:
    """One row of the table of errors of a program: the sync service or the verifier.

    `status` is the HTTP status of the answer. `meaning` says what happened in general, and `remedy` what to do next.
    The documentation shows both; every error answer contains the remedy. Kinds are equal if their names are equal: an
    error that both programs can raise is in both tables, with a remedy for each program.
    """

    name: str
    status: int = field(compare=False)
    meaning: str = field(compare=False)
    remedy: str = field(compare=False)

    def with_remedy(self, *sentences: str) -> ErrorKind:
        """Return the same error kind with the given sentences appended to its remedy."""
        return replace(self, remedy=" ".join((self.remedy, *sentences)))


# A reason to refuse a command: the kind of the error, and its description.
Violation = tuple[ErrorKind, str]

INTERNAL_ERROR = ErrorKind(
    "InternalError",
    500,
    "An unexpected error occurred inside this program.",
    "This is a bug: report it with the log lines around the error. Nothing is lost: a restart continues the work.",
)


class OperationError(Exception):
    """An error with a name. `description` says what went wrong, with the actual values; `str()` adds the remedy."""

    def __init__(self, kind: ErrorKind, description: str) -> None:
        super().__init__(description)
        self.kind = kind
        self.description = description

    def __str__(self) -> str:
        return f"{self.description} {self.kind.remedy}".rstrip()


class Violations(OperationError):
    """One error for several violations, which are reasons to refuse a command. It has the kind of the first violation.

    Its text contains the name, the descriptions and the remedy of each kind. `found` must not be empty.
    """

    def __init__(self, found: Sequence[Violation]) -> None:
        texts: dict[ErrorKind, list[str]] = {}
        for kind, text in found:
            texts.setdefault(kind, []).append(text)
        super().__init__(
            found[0][0],
            " ".join(f"{kind.name}: {' '.join(texts[kind])} {kind.remedy}" for kind in texts),
        )

    def __str__(self) -> str:
        return self.description


def in_words_of(table: Iterable[ErrorKind], error: E) -> E | OperationError:
    """Return an OperationError of the same kind, with the remedy that the kind has in `table`.

    If the table lacks the kind, the error keeps its remedy. Other exceptions are returned unchanged; so are subclasses
    of OperationError, because their text already contains the remedies.
    """
    if not isinstance(error, OperationError) or type(error) is not OperationError:
        return error
    kind = next((each for each in table if each == error.kind), error.kind)
    return OperationError(kind, error.description)


def describe(error: BaseException) -> tuple[ErrorKind, str]:
    """Return the kind and the full text with which an error is reported and stored.

    Every error that is not an OperationError is reported as InternalError.
    """
    if isinstance(error, OperationError):
        return error.kind, str(error)
    return INTERNAL_ERROR, f"{type(error).__name__}: {error}. {INTERNAL_ERROR.remedy}"


def as_rst(kinds: Iterable[ErrorKind]) -> str:
    """Return an error table as a reStructuredText list for the documentation."""
    return "".join(
        f"``{kind.name}`` ({kind.status})\n    {kind.meaning} {kind.remedy}\n" for kind in kinds
    )


def raise_all(violations: Iterable[Violation]) -> None:
    """Raise one OperationError that describes all violations; do nothing if there are none.

    The error has the kind of the first violation.
    """
    found = list(violations)
    if len({kind for kind, _ in found}) > 1:
        raise Violations(found)
    if found:
        raise OperationError(found[0][0], " ".join(text for _, text in found))
