"""Serves a Flask app with waitress until a signal or a stop request.

The app answers errors with a JSON body that has the fields `success`, `error` and `errorDescription`.
"""

from __future__ import annotations

import json
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from types import FrameType
from typing import Any, cast

from flask import Flask, Response, jsonify, request
from waitress import wasyncore
from waitress.server import BaseWSGIServer, create_server
from werkzeug.exceptions import (
    HTTPException,
    MethodNotAllowed,
    NotFound,
    RequestEntityTooLarge,
)

from verifier.runtime import strict_json
from verifier.runtime.channel import BODY_TOO_LARGE, MALFORMED_BODY, Channel, error_body
from verifier.runtime.commands import MOST_WAITING
from verifier.runtime.connections import (
    CLEANUP_INTERVAL,
    LONGEST_SILENCE,
    MOST_CONNECTIONS,
    make_room,
)
from verifier.runtime.errors import ErrorKind, OperationError, describe
from verifier.runtime.schemas import INVALID_REQUEST
from verifier.runtime.tasks import StopToken
from verifier.runtime.tls import Certificate

# The largest request body that the app accepts, in bytes: a body holds only options and filters.
MAX_BODY = 1 << 20
# waitress itself refuses a longer body, without passing the request to the app. In bytes.
_MOST_STORED = 4 * MAX_BODY
# The most requests that may read from a cluster at once. Each request occupies a thread until its client has read
# all of the answer but the last 16 MB, which waitress buffers.
MOST_READERS = 4
# This is more than the number of threads that readers, commands that wait for the startup, one command, one preflight
# and one change of the limits occupy at once.
REQUEST_THREADS = MOST_READERS + MOST_WAITING + 6
# Poll interval for a stop request, in seconds.
_POLL = 0.2

NOT_FOUND = ErrorKind(
    "NotFound",
    404,
    "The API has no such path.",
    "Correct the path: GET /api/v1/openapi.json lists all paths.",
)

METHOD_NOT_ALLOWED = ErrorKind(
    "MethodNotAllowed",
    405,
    "The path does not accept the HTTP method of the request.",
    "Use one of the methods that the error text names.",
)

ADDRESS_NOT_AVAILABLE = ErrorKind(
    "AddressNotAvailable",
    500,
    "The HTTP API cannot listen on its address.",
    "If another program listens on the port, stop that program or choose another port. Otherwise, choose an address of "
    "this machine (--bindAddress) and a port that the user of this process may use.",
)

TOO_MANY_READERS = ErrorKind(
    "TooManyReaders",
    503,
    f"{MOST_READERS} requests that read from a cluster are being answered, which is the maximum. A slow client, or a "
    "cluster that does not answer, may delay the answers.",
    "Send the request again later: it is accepted when one of the requests that read from a cluster has ended.",
)

_log = logging.getLogger(__name__)


def json_body(read: Callable[[str], Any] = strict_json.read) -> dict[str, Any]:
    """Return the request body as a JSON object, regardless of its content type; an absent body counts as {}.

    The body must be UTF-8, as RFC 8259 requires; a leading byte order mark is ignored. `read` parses the text; it must
    raise ValueError or RecursionError for invalid text. Raises OperationError MalformedBody for any other body, and
    InvalidRequest for query parameters: a command must not be executed without its dryRun.
    """
    if request.args:
        given = "; ".join(f"{name}: Must be in the body, not in the URL" for name in request.args)
        raise OperationError(INVALID_REQUEST, f"{given}.")
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise OperationError(
            MALFORMED_BODY,
            f"The header Content-Encoding must not be {encoding}: send the body uncompressed.",
        )
    data = request.get_data()
    if not data.strip():
        return {}
    try:
        body = read(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise OperationError(
            MALFORMED_BODY, f"The request body cannot be read as JSON: {error}."
        ) from error
    if not isinstance(body, dict):
        raise OperationError(MALFORMED_BODY, "The request body is JSON, but not an object.")
    return body


def parameters() -> dict[str, Any]:
    """Return the query parameters of the request. A repeated parameter becomes a list, which every schema rejects."""
    given = request.args.lists()
    return {name: values[0] if len(values) == 1 else values for name, values in given}


def tagged(answer: dict[str, Any]) -> Response:
    """Return a JSON answer with an ETag; if the client already has this answer, status 304 without a body."""
    response = jsonify(answer)
    response.add_etag()
    # Without this header, a browser may show an old answer without asking the server.
    response.headers["Cache-Control"] = "no-cache"
    return cast(Response, response.make_conditional(request))


def streamed_lines(lines: Iterator[str]) -> Response:
    """Return an answer that streams the lines, each of which is one JSON object.

    An exception before the first line is raised, so the app answers with an ordinary error. A later exception becomes
    the last line.
    """
    first = next(lines, None)
    every = lines if first is None else chain([first], lines)
    # Proxies must not buffer the lines.
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return Response(_ended_by_error(every), mimetype="application/x-ndjson", headers=headers)


class Readers:
    """Limits the concurrent requests that read from a cluster, so that threads remain for other requests.

    At most `MOST_READERS` such requests run at the same time. All endpoints of a process must share one object.
    """

    def __init__(self) -> None:
        self._slots = threading.BoundedSemaphore(MOST_READERS)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count the `with` block as a request that reads from a cluster.

        Raise OperationError TooManyReaders at the limit.
        """
        if not self._slots.acquire(blocking=False):
            raise OperationError(
                TOO_MANY_READERS,
                f"{MOST_READERS} other requests that read from a cluster are being answered, so this request was "
                "refused.",
            )
        try:
            yield
        finally:
            self._slots.release()

    def stream(self, lines: Iterator[str]) -> Response:
        """Return the result of `streamed_lines(lines)`, and count the answer as a request that reads from a cluster.

        The request counts until the last line is passed to waitress or the connection is closed. Raises OperationError
        TooManyReaders.
        """
        with ExitStack() as reading:
            reading.enter_context(self.one())
            answer = streamed_lines(lines)
            # The slot is held until the last line is passed to waitress or the connection is closed.
            answer.call_on_close(reading.pop_all().close)
        return answer


def _ended_by_error(lines: Iterator[str]) -> Iterator[str]:
    try:
        for line in lines:
            yield f"{line}\n"
    except Exception as error:
        kind, description = describe(error)
        if not isinstance(error, OperationError):
            description = f"{kind.meaning} {kind.remedy}"
            _log.error(
                "A streamed answer failed because of a bug in this program. Report it with this line of the log.",
                exc_info=error,
            )
        yield f"{json.dumps(error_body(kind.name, description))}\n"


def install_error_handlers(app: Flask) -> None:
    """Make the app answer every error with `success`, `error` and `errorDescription`, and refuse oversized bodies."""
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY
    app.register_error_handler(OperationError, _named_error)
    app.register_error_handler(RequestEntityTooLarge, _too_large)
    app.register_error_handler(NotFound, _not_found)
    app.register_error_handler(MethodNotAllowed, _method_not_allowed)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _unexpected_error)


def _named_error(error: OperationError) -> tuple[dict[str, Any], int]:
    return error_body(error.kind.name, str(error)), error.kind.status


def _too_large(error: RequestEntityTooLarge) -> tuple[dict[str, Any], int]:
    return _named_error(
        OperationError(
            BODY_TOO_LARGE, "The request body is larger than 1 MB, so the request was not read."
        )
    )


def _not_found(error: NotFound) -> tuple[dict[str, Any], int]:
    return _named_error(OperationError(NOT_FOUND, f"The API has no path {request.path}."))


def _method_not_allowed(
    error: MethodNotAllowed,
) -> tuple[dict[str, Any], int, dict[str, str]]:
    allowed = sorted(error.valid_methods or ())
    # Flask adds HEAD and OPTIONS by itself.
    own = " or ".join(each for each in allowed if each not in ("HEAD", "OPTIONS"))
    text = f"{request.path} accepts {own}, not {request.method}."
    return *_named_error(OperationError(METHOD_NOT_ALLOWED, text)), {"Allow": ", ".join(allowed)}


def _http_error(error: HTTPException) -> tuple[dict[str, Any], int, dict[str, str]]:
    name = error.name.title().replace(" ", "")
    body = error_body(name, f"{request.method} {request.path}: {error.description}")
    # Keep headers such as Allow, but not Content-Type: the body is JSON.
    headers = {key: value for key, value in error.get_headers() if key != "Content-Type"}
    return body, error.code or 500, headers


def _unexpected_error(error: Exception) -> tuple[dict[str, Any], int]:
    kind, _ = describe(error)
    _log.error(
        "A request failed because of a bug in this program. Report it with this line of the log.",
        exc_info=error,
        extra={"uri": request.path},
    )
    return error_body(kind.name, f"{kind.meaning} {kind.remedy}"), kind.status


class HttpServer:
    """An HTTP server for one Flask app; with a `certificate`, an HTTPS server.

    The constructor binds the address, so that an address in use is reported before anything else starts. Raises
    OperationError AddressNotAvailable.
    """

    def __init__(
        self, app: Flask, address: str, port: int, certificate: Certificate | None = None
    ) -> None:
        # Listening sockets and connections by file descriptor: the socket map of waitress.
        self._sockets: dict[int, Any] = {}
        try:
            self._server = create_server(
                app,
                self._sockets,
                host=address,
                port=port,
                threads=REQUEST_THREADS,
                ident=None,
                # waitress also counts its own sockets, and must keep accepting at our limit.
                connection_limit=2 * MOST_CONNECTIONS,
                channel_timeout=LONGEST_SILENCE,
                cleanup_interval=CLEANUP_INTERVAL,
                # waitress stores a body before the app sees it: bound the disk space that a client can fill.
                max_request_body_size=_MOST_STORED,
                url_scheme="http" if certificate is None else "https",
            )
        except (OSError, ValueError) as error:
            description = f"The API cannot listen on {address}, port {port}: {error}."
            raise OperationError(ADDRESS_NOT_AVAILABLE, description) from error
        accept = Channel if certificate is None else certificate.connect
        for listener in self._sockets.values():
            if isinstance(listener, BaseWSGIServer):
                listener.channel_class = cast(Any, accept)

    def serve(
        self,
        stop: StopToken,
        leaving: Callable[[], None] = lambda: None,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        """Answer requests until SIGTERM, SIGINT or a stop request; then wait up to five seconds for the open requests.

        `leaving` is called before that wait, so that blocked requests can give up. `between` is called several times a
        second. Must run in the main thread, to which Python delivers signals.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _leave)
        try:
            while not stop.stopped:
                between()
                make_room(self._sockets)
                # Use poll(): select() fails for file descriptors above 1023.
                wasyncore.loop(_POLL, use_poll=True, map=self._sockets, count=1)
        except SystemExit:
            pass
        finally:
            leaving()
            self._server.task_dispatcher.shutdown()
            self._server.close()


def _leave(number: int, frame: FrameType | None) -> None:
    # Raising is the only way to leave a waiting loop immediately. A second signal of the same
    # kind ends the process without cleanup.
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(0)
