"""A connection of waitress that answers requests which waitress cannot parse in the same form as the app's errors."""

from __future__ import annotations

import json
from typing import Any

from waitress.channel import HTTPChannel
from waitress.task import ErrorTask

from verifier.runtime.errors import ErrorKind, OperationError

MALFORMED_BODY = ErrorKind(
    "MalformedBody",
    400,
    "The request body is not a JSON object in UTF-8, is compressed or badly encoded, or an object in it has a repeated "
    "field or a number that is too large.",
    "Send one JSON object in UTF-8, for example {}, without repeated fields, and uncompressed.",
)

# The texts of waitress about a body in chunks.
_ABOUT_CHUNKS = "chunk"


def error_body(name: str, description: str) -> dict[str, Any]:
    return {"success": False, "error": name, "errorDescription": description}


class _Refusal(ErrorTask):
    """The answer to a request that waitress cannot parse, and so never passes to the app."""

    def execute(self) -> None:
        # The type stubs of waitress do not know that the request has an error, and that the headers are a list.
        task: Any = self
        error = task.request.error
        text = json.dumps(_refused(error.reason, error.body)).encode()
        self.status = f"{error.code} {error.reason}"
        task.response_headers.append(("Content-Type", "application/json"))
        self.set_close_on_finish()
        self.content_length = len(text)
        self.write(text)


def _refused(reason: str, text: str) -> dict[str, Any]:
    """Return the body of the answer. `reason` is the text of the HTTP status, and `text` that of waitress."""
    if _ABOUT_CHUNKS in text.lower():
        error = OperationError(
            MALFORMED_BODY,
            f"The request has the header Transfer-Encoding: chunked, but its body cannot be read: {text}.",
        )
        return error_body(error.kind.name, str(error))
    name = reason.title().replace(" ", "")
    return error_body(name, f"The HTTP request cannot be read: {text.rstrip('.')}.")


class Channel(HTTPChannel):
    """A connection whose errors have the form of the app's errors."""

    error_task_class = _Refusal
