"""A request body must be a JSON object in UTF-8, and every error must be answered in the standard shape.

Also tests streamed answers, the address on which the server listens, and that the server stops on SIGTERM.
"""

from __future__ import annotations

import gzip
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from flask.testing import FlaskClient
from hypothesis import example, given
from hypothesis import strategies as st
from werkzeug.test import TestResponse

from tests.support.small_app import make_app
from verifier.runtime.errors import INTERNAL_ERROR, OperationError
from verifier.runtime.httpd import (
    ADDRESS_NOT_AVAILABLE,
    MAX_BODY,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    HttpServer,
)
from verifier.runtime.tasks import StopToken

ROOT = Path(__file__).parents[3]
# Encodings with a byte order mark (utf-16, utf-32), and without one.
OTHER_ENCODINGS = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")


@pytest.fixture(scope="module")
def client() -> Iterator[FlaskClient]:
    with make_app().test_client() as client:
        yield client


def assert_error(answer: TestResponse, status: int, name: str) -> str:
    """Fail unless the answer is an error of the standard shape, with this status and name; return its description."""
    assert answer.status_code == status
    body = answer.get_json()
    assert list(body) == ["error", "errorDescription", "success"]
    assert (body["success"], body["error"]) == (False, name)
    assert isinstance(body["errorDescription"], str) and body["errorDescription"]
    return str(body["errorDescription"])


@pytest.mark.parametrize(
    "data, body",
    [
        (b"", {}),
        (b" \r\n\t", {}),
        (b"{}", {}),
        (b'{"a": [1, null, {"b": 0.5}]}', {"a": [1, None, {"b": 0.5}]}),
        ('{"ä": "漢"}'.encode(), {"ä": "漢"}),
        ('{"a": 1}'.encode("utf-8-sig"), {"a": 1}),
    ],
)
def test_an_object_is_read(client: FlaskClient, data: bytes, body: dict[str, Any]) -> None:
    assert client.post("/body", data=data).get_json() == {"body": body}


@pytest.mark.parametrize("query", ["dryRun=true", "dryRun", "dryRun=true&dryRun=false"])
def test_query_parameters_of_a_command_are_refused(client: FlaskClient, query: str) -> None:
    answer = client.post(f"/body?{query}", data=b"{}")
    assert "dryRun: Must be in the body" in assert_error(answer, 400, "InvalidRequest")


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "x", ""])
def test_the_content_type_is_ignored(client: FlaskClient, kind: str) -> None:
    assert client.post("/body", data=b'{"a": 1}', content_type=kind).status_code == 200


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"null",
        b"1",
        b'"text"',
        b"true",
        b"{",
        b"{'a': 1}",
        b'{"a": 1} x',
        b"\xff\xfe\xfd",
        b"\0",
        b'{"a": ' + b"1" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"a": "\xed\xa0\x80"}',
        b"\xef\xbb\xbf",
        *("{}".encode(encoding) for encoding in OTHER_ENCODINGS),
    ],
    ids=range(16 + len(OTHER_ENCODINGS)),
)
def test_a_body_that_is_no_json_object_is_malformed(client: FlaskClient, data: bytes) -> None:
    assert_error(client.post("/body", data=data), 400, "MalformedBody")


@given(data=st.binary() | st.text().map(str.encode))
@example(b"NaN")
@example(b'{"\\ud800": "\\udfff"}')
@example(b'{"a": NaN, "b": 1e999}')
def test_any_bytes_are_an_object_or_a_malformed_body(client: FlaskClient, data: bytes) -> None:
    answer = client.post("/body", data=data)
    if answer.status_code == 200:
        assert isinstance(json.loads(answer.data)["body"], dict)
    else:
        assert_error(answer, 400, "MalformedBody")


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" + "0" * 400, "1" + "0" * 5000])
@pytest.mark.parametrize("body", ['{"a": {"n": NUMBER}}', '{"n": [1, [NUMBER]]}'])
def test_a_number_that_is_too_large_is_refused_with_its_field(
    client: FlaskClient, number: str, body: str
) -> None:
    text = assert_error(
        client.post("/body", data=body.replace("NUMBER", number)), 400, "MalformedBody"
    )
    assert 'the field "n" has a number that is too large' in text


@pytest.mark.parametrize("data", [b"", b"{}", gzip.compress(b"{}")], ids=["empty", "plain", "gzip"])
def test_a_compressed_body_is_refused_with_its_header(client: FlaskClient, data: bytes) -> None:
    answer = client.post("/body", data=data, headers={"Content-Encoding": "gzip"})
    assert "Content-Encoding must not be gzip" in assert_error(answer, 400, "MalformedBody")
    assert client.post("/body", headers={"Content-Encoding": "identity"}).status_code == 200


@pytest.mark.parametrize(
    "method, path, status, name",
    [
        ("GET", "/nowhere", 404, "NotFound"),
        ("POST", "/", 404, "NotFound"),
        ("GET", "/body", 405, "MethodNotAllowed"),
        ("DELETE", "/named", 405, "MethodNotAllowed"),
        ("GET", "/named", 418, "Teapot"),
        ("GET", "/broken", 500, "InternalError"),
    ],
)
def test_errors_have_one_shape(
    client: FlaskClient, method: str, path: str, status: int, name: str
) -> None:
    assert_error(client.open(path, method=method), status, name)


def test_a_body_that_is_too_large_is_refused(client: FlaskClient) -> None:
    answer = client.post("/body", data=b"{" + b" " * MAX_BODY + b"}")
    assert_error(answer, 413, "RequestEntityTooLarge")


def test_the_largest_body_is_read(client: FlaskClient) -> None:
    assert client.post("/body", data=b"{" + b" " * (MAX_BODY - 2) + b"}").status_code == 200


def test_a_named_error_has_description_and_remedy(client: FlaskClient) -> None:
    assert assert_error(client.get("/named"), 418, "Teapot") == "Short and stout. Do not."


def test_an_internal_error_is_logged_and_not_shown(
    client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    description = assert_error(client.get("/broken"), 500, "InternalError")
    assert description == f"{INTERNAL_ERROR.meaning} {INTERNAL_ERROR.remedy}"
    (record,) = caplog.records
    assert record.exc_info is not None and isinstance(record.exc_info[1], KeyError)


def test_lines_are_streamed(client: FlaskClient) -> None:
    answer = client.get("/lines/1")
    assert (answer.status_code, answer.text) == (200, '{"number": 0}\n')
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    assert answer.headers["X-Accel-Buffering"] == "no"


def test_an_error_before_the_first_line_has_its_status(client: FlaskClient) -> None:
    assert_error(client.get("/lines/0"), 418, "Teapot")


def test_an_error_after_that_is_the_last_line(client: FlaskClient) -> None:
    answer = client.get("/lines/2")
    *lines, last = map(json.loads, answer.text.splitlines())
    assert (answer.status_code, lines) == (200, [{"number": 0}, {"number": 1}])
    assert (last["error"], last["errorDescription"]) == ("Teapot", "Short and stout. Do not.")


def test_a_wrong_path_is_named(client: FlaskClient) -> None:
    description = assert_error(client.get("/nowhere?a=b"), 404, "NotFound")
    assert description == f"The API has no path /nowhere. {NOT_FOUND.remedy}"


def test_a_wrong_method_is_answered_with_the_allowed_ones(client: FlaskClient) -> None:
    answer = client.get("/body")
    description = assert_error(answer, 405, "MethodNotAllowed")
    assert description == f"/body accepts POST, not GET. {METHOD_NOT_ALLOWED.remedy}"
    assert answer.headers["Allow"] == "OPTIONS, POST"


def test_an_address_in_use_is_a_named_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OperationError, match=f"127.0.0.1, port {port}") as raised:
            HttpServer(make_app(), "127.0.0.1", port)
    assert raised.value.kind is ADDRESS_NOT_AVAILABLE


@pytest.mark.parametrize("address", ["", "not an address"])
def test_an_invalid_address_is_a_named_error(address: str) -> None:
    with pytest.raises(OperationError, match="AddressNotAvailable|cannot listen"):
        HttpServer(make_app(), address, 0)


SERVER = """
import socket, sys
from tests.support.small_app import LEAVING, make_app
from verifier.runtime.httpd import HttpServer
from verifier.runtime.tasks import StopToken
with socket.create_server(("127.0.0.1", 0)) as probe:
    port = probe.getsockname()[1]
server = HttpServer(make_app(), "127.0.0.1", port)
print(port, flush=True)
server.serve(StopToken(), LEAVING.set)
print("served", flush=True)
"""


def test_serving_ends_when_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    # Keep the signal handlers of the test run.
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    stop = StopToken()
    stop.stop("a thread failed")
    HttpServer(make_app(), "127.0.0.1", 0).serve(stop)


def test_serving_ends_on_sigterm() -> None:
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        request = b'{"a": 1}'
        answer = urlopen(f"http://127.0.0.1:{port}/body", data=request, timeout=60).read()
        process.terminate()
        assert process.stdout.read() == b"served\n"
    assert process.returncode == 0
    assert json.loads(answer) == {"body": {"a": 1}}


def test_waiting_requests_are_notified_of_sigterm() -> None:
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET /waits HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert process.stdout.readline() == b"waits\n"
            process.terminate()
            answer = connection.makefile("rb").read()
        process.wait()
    assert b'{"waited":true}' in answer


POST = b"POST /body HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
UNREADABLE = [
    (CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n", 400, "MalformedBody", "Transfer-Encoding: chunked"),
    (CHUNKED + b"2\r\n{}xx\r\n0\r\n\r\n", 400, "MalformedBody", "Transfer-Encoding: chunked"),
    (POST + b"Content-Length: abc\r\n\r\n", 400, "BadRequest", "Content-Length"),
    (POST + b"Transfer-Encoding: x\r\n\r\n", 501, "NotImplemented", "Transfer-Encoding"),
    (b"NONSENSE\r\n\r\n", 400, "BadRequest", "Start line"),
    (POST + b"Transfer-Encoding chunked\r\n\r\n", 400, "BadRequest", "cannot be read"),
    (POST + b"Content-Length: 9000000\r\n\r\n", 413, "RequestEntityTooLarge", "1 MB"),
]


def test_a_request_that_is_not_valid_http_gets_an_error_of_the_same_shape() -> None:
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        answers = [answer_to(request, port) for request, *_ in UNREADABLE]
        process.terminate()
    for (head, body), (_, status, name, text) in zip(answers, UNREADABLE, strict=True):
        assert int(head.split()[1]) == status and b"Content-Type: application/json" in head
        shown = json.loads(body)
        assert (shown["success"], shown["error"]) == (False, name)
        assert text in shown["errorDescription"]


def answer_to(request: bytes, port: int) -> tuple[bytes, bytes]:
    """Send the bytes of a request to a server on this machine; return the head and the body of the answer."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(request)
        head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
    return head, body
