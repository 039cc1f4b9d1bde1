"""A connection of waitress whose own error answers have the same form as those of the app."""

from __future__ import annotations

import json
from typing import Any

from waitress.channel import HTTPChannel
from waitress.task import ErrorTask

from verifier.runtime.errors import INTERNAL_ERROR, ErrorKind, OperationError

MALFORMED_BODY = ErrorKind(
    "MalformedBody",
    400,
    "The request body is not a JSON object in UTF-8, is compressed or badly encoded, or an object in it has a repeated "
    "field or a number that is too large.",
    "Send one JSON object in UTF-8, for example {}, without repeated fields, and uncompressed.",
)

BODY_TOO_LARGE = ErrorKind(
    "RequestEntityTooLarge",
    413,
    "The request body is larger than 1 MB.",
    "Send a smaller body: name fewer namespaces or, if the field is a filter, select them by a pattern.",
)


def error_body(name: str, description: str) -> dict[str, Any]:
    return {"success": False, "error": name, "errorDescription": description}


class _Refusal(ErrorTask):
    """An answer that waitress gives in place of the app.

    waitress itself answers a request that is too large or cannot be parsed, which never reaches the app, and a request
    for which the app raised an unhandled exception.
    """

    def execute(self) -> None:
        # The type stubs of waitress do not know that the request has an error, and that the headers are a list.
        task: Any = self
        error = task.request.error
        text = json.dumps(_refused(error, task.request.chunked)).encode()
        self.status = f"{error.code} {error.reason}"
        task.response_headers.append(("Content-Type", "application/json"))
        self.set_close_on_finish()
        self.content_length = len(text)
        self.write(text)


def _refused(error: Any, chunked: bool) -> dict[str, Any]:
    """Return the body of the answer to an `error` of waitress. `chunked` says whether the body comes in chunks."""
    text = error.body.rstrip(".")
    if error.code == BODY_TOO_LARGE.status:
        found = OperationError(BODY_TOO_LARGE, BODY_TOO_LARGE.meaning)
    elif error.code == INTERNAL_ERROR.status:
        found = OperationError(INTERNAL_ERROR, INTERNAL_ERROR.meaning)
    elif error.code == MALFORMED_BODY.status and chunked:
        found = OperationError(
            MALFORMED_BODY,
            f"The request has the header Transfer-Encoding: chunked, but its body cannot be read: {text}.",
        )
    else:
        name = error.reason.title().replace(" ", "")
        return error_body(name, f"The HTTP request cannot be read: {text}.")
    return error_body(found.kind.name, str(found))


class Channel(HTTPChannel):
    """A connection whose errors have the form of the app's errors."""

    error_task_class = _Refusal
