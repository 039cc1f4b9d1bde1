"""A receiver of webhooks on loopback: an HTTP server that keeps the notices, and answers as the test specifies."""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import time
from typing import Any

from tests.support.waiting import wait_for
from verifier.runtime.webhook import SIGNATURE

SECRET = "S3cr3t-of-the-receiver"
PATH = "/hooks/T0k3n"


@dataclass
class Receiver:
    """Keeps the requests that it has accepted, and answers with the HTTP status `status`, or not at all if `hangs`.

    The answers have a header line without a colon if `malformed`.
    """

    url: str = ""
    status: int = 200
    hangs: bool = False
    malformed: bool = False
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    attempts: int = 0
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def notices(self) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self.bodies]

    def states(self) -> list[str]:
        return [each["state"] for each in self.notices if each["event"] == "state"]

    def wait_for_state(self, state: str) -> None:
        wait_for(lambda: self.states()[-1:] == [state], f"a notice of the state {state}")

    def assert_signed(self, secret: str = SECRET) -> None:
        """Fail unless each request has a valid signature with this secret, in the documented format."""
        assert self.bodies
        for headers, body in zip(self.headers, self.bodies, strict=True):
            signature = dict(part.split("=") for part in headers[SIGNATURE].split(","))
            signed = f"{signature['t']}.".encode() + body
            assert signature["v1"] == hmac.new(secret.encode(), signed, sha256).hexdigest()
            assert abs(time() - int(signature["t"])) < 600

    def assert_in_order(self) -> None:
        """Fail if a notice of a process came twice, or before an earlier notice of the same process."""
        numbers: dict[str, list[int]] = {}
        for each in self.notices:
            process, _, number = each["id"].partition("-")
            assert int(number) == each["number"]
            numbers.setdefault(process, []).append(each["number"])
        assert all(found == sorted({*found}) for found in numbers.values()), numbers


def write_secret(folder: Path, secret: str = SECRET) -> str:
    """Write a secret file, and return its path."""
    path = folder / "webhook-secret"
    path.touch(mode=0o600)
    path.write_text(f"{secret}\n")
    return str(path)


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    """Run a Receiver on loopback during the block, on `port`; 0 stands for any free port."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.attempts += 1
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if receiver.hangs:
                receiver.released.wait()
                return
            if receiver.status == 200:
                receiver.headers.append(dict(self.headers))
                receiver.bodies.append(body)
            self.send_response(receiver.status)
            if receiver.malformed:
                self.flush_headers()
                self.wfile.write(b"X-Bad header\r\n")
            self.send_header("Location", receiver.url)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}{PATH}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.released.set()
            server.shutdown()
            thread.join()
