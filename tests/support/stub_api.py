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
    """A request that the server received, with the body as parsed JSON; None without a body."""

    method: str
    path: str
    body: Any
    headers: Mapping[str, str]


@dataclass
class StubApi:
    """Answers each path with its prepared answers in turn, the last one again and again; otherwise with NotFound."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    _answers: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))

    def answer(self, path: str, *bodies: Any, status: int = 200) -> None:
        """Add answers of a path, such as `progress` or `/metrics`: objects, which are sent as JSON, or texts."""
        texts = (body if isinstance(body, str) else json.dumps(body) for body in bodies)
        self._answers[_absolute(path)] += [(status, text) for text in texts]

    def refuse(self, path: str, error: str, status: int = 409) -> None:
        """Add a refusal of a path, with the name of the error."""
        body = {"success": False, "error": error, "errorDescription": f"Because of {error}."}
        self.answer(path, body, status=status)

    def forget(self) -> None:
        """Forget the prepared answers, and the requests."""
        self._answers.clear()
        self.requests.clear()

    def bodies(self, path: str) -> list[Any]:
        """Return the bodies of the requests to a path."""
        wanted = _absolute(path)
        return [each.body for each in self.requests if each.path.partition("?")[0] == wanted]

    def take(self, path: str) -> tuple[int, str]:
        """Return the next answer to a request to this path."""
        prepared = self._answers[path]
        if not prepared:
            body = {"success": False, "error": "NotFound", "errorDescription": "No such path."}
            return 404, json.dumps(body)
        return prepared.pop(0) if len(prepared) > 1 else prepared[0]


def _absolute(path: str) -> str:
    return path if path.startswith("/") else f"/api/v1/{path}"


@contextmanager
def stub_api(tls: SSLContext | None = None) -> Iterator[StubApi]:
    """Serve a StubApi on loopback while the block runs; with TLS, as localhost."""
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
