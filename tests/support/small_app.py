"""A small Flask app to test the HTTP server with.

This module does not import pytest, so that a process that serves the app starts quickly.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

from flask import Flask, Response

from verifier.runtime.errors import ErrorKind, OperationError
from verifier.runtime.httpd import Readers, install_error_handlers, json_body, streamed_lines

# GET /waits answers when this event is set.
LEAVING = threading.Event()
TEAPOT = ErrorKind("Teapot", 418, "It is a teapot.", "Do not.")


def make_app() -> Flask:
    """Return an app whose answers are short, long, endless, late or errors."""
    app = Flask("test")
    install_error_handlers(app)
    readers = Readers()

    @app.post("/body")
    def body() -> dict[str, Any]:
        return {"body": json_body()}

    @app.get("/named")
    def named() -> dict[str, Any]:
        raise OperationError(TEAPOT, "Short and stout.")

    @app.get("/lines/<int:count>")
    def lines(count: int) -> Response:
        return streamed_lines(_numbered(count))

    @app.get("/endless")
    def endless() -> Response:
        return readers.stream(iter(lambda: "x" * 100_000, None))

    @app.get("/read/<int:count>")
    def read(count: int) -> Response:
        return readers.stream(_numbered(count))

    @app.get("/large/<int:size>")
    def large(size: int) -> str:
        return "x" * size

    @app.get("/waits")
    def waits() -> dict[str, Any]:
        print("waits", flush=True)
        LEAVING.wait()
        return {"waited": True}

    @app.get("/broken")
    def broken() -> dict[str, Any]:
        raise KeyError("S3cr3t")

    return app


def _numbered(count: int) -> Iterator[str]:
    """Yield one JSON line if `count` is 1; otherwise, yield `count` JSON lines and then raise an error."""
    for number in range(count):
        yield json.dumps({"number": number})
    if count != 1:
        raise OperationError(TEAPOT, "Short and stout.")
