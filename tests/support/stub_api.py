"""An HTTP server with prepared answers, for the tests of clients of the API."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from threading import Thread
from typing import Any


@dataclass(frozen=True)
class Request:
    """A request that the server received. The body is parsed JSON, or None if the request had no body."""

    method: str
    path: str
    body: Any
    headers: Mapping[str, str]


@dataclass
class StubApi:
    """Answers each path with its prepared answers in turn, and repeats the last one. Other paths get NotFound."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    _answers: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))

    def answer(self, path: str, *bodies: Any, status: int = 200) -> None:
        """Queue answers for a path such as `progress` or `/metrics`. Objects are sent as JSON, strings as text."""
        texts = (body if isinstance(body, str) else json.dumps(body) for body in bodies)
        self._answers[_absolute(path)] += [(status, text) for text in texts]

    def refuse(self, path: str, error: str, status: int = 409) -> None:
        """Queue a refusal for a path, with the name of the error."""
        body = {"success": False, "error": error, "errorDescription": f"Because of {error}."}
        self.answer(path, body, status=status)

    def break_off(self, path: str) -> None:
        """Queue a broken connection for a path: the server closes it without an answer, as a killed daemon does."""
        self.answer(path, "", status=0)

    def forget(self) -> None:
        """Forget the prepared answers and the received requests."""
        self._answers.clear()
        self.requests.clear()

    def bodies(self, path: str) -> list[Any]:
        """Return the bodies of the received requests to a path, in order."""
        wanted = _absolute(path)
        return [each.body for each in self.requests if each.path.partition("?")[0] == wanted]

    def take(self, path: str) -> tuple[int, str]:
        """Return the status and the text of the next prepared answer for a path, and remove the answer.

        The last answer is not removed. For a path without answers, return NotFound.
        """
        prepared = self._answers[path]
        if not prepared:
            body = {"success": False, "error": "NotFound", "errorDescription": "No such path."}
            return 404, json.dumps(body)
        return prepared.pop(0) if len(prepared) > 1 else prepared[0]


def _absolute(path: str) -> str:
    return path if path.startswith("/") else f"/api/v1/{path}"


@contextmanager
def stub_api(tls: SSLContext | None = None) -> Iterator[StubApi]:
    """Run a StubApi on loopback during the block; with `tls`, under the name localhost."""
    stub = StubApi()

    class Handler(BaseHTTPRequestHandler):
        # Send the headers and the body together: otherwise, the body waits for a delayed acknowledgement.
        wbufsize = -1

        def _respond(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            text = self.rfile.read(length).decode()
            body = json.loads(text) if text else None
            stub.requests.append(Request(self.command, self.path, body, dict(self.headers)))
            status, answer = stub.take(self.path.partition("?")[0])
            if not status:
                self.close_connection = True
                return
            data = answer.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = _respond

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        stub.url = f"http://127.0.0.1:{server.server_port}"
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
            stub.url = f"https://localhost:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()
