"""Posts notices of state changes and warnings to a webhook, a URL that the operator gives.

One thread sends the notices, one after the other, in their order. `post` only adds a notice to a bounded queue, and
never waits for the receiver. The queue is in memory: the notices that are in it when the process ends are lost.
"""

from __future__ import annotations

import hmac
import json
import logging
import socket
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from time import monotonic, time
from typing import Any
from urllib.parse import urlsplit

import requests

from verifier.runtime import waits
from verifier.runtime.errors import ErrorKind, OperationError
from verifier.runtime.files import access_rule, read_private
from verifier.runtime.logs import redacted
from verifier.runtime.metrics import Kind, Metric, single
from verifier.runtime.options import Option
from verifier.runtime.tasks import Cancelled, StopToken
from verifier.runtime.version import VERSION

_log = logging.getLogger(__name__)

INVALID_WEBHOOK_SECRET = ErrorKind(
    "InvalidWebhookSecret",
    500,
    "The file in --webhookSecretFile cannot be used.",
    "Write the secret that the receiver knows as the only line of the file: at least 16 characters, without spaces. "
    + access_rule("the file"),
)
OPTIONS = (
    Option(
        "webhook",
        "URL to which state changes and warnings are posted as JSON",
        value="URL",
    ),
    Option(
        "webhookSecretFile",
        "file with the secret that signs the requests to the webhook",
        value="FILE",
    ),
)
SIGNATURE = "X-Syncsvc-Signature"

# The timeouts for the connection and for the answer, in seconds. Their sum is less than the time in which the process
# must end after SIGTERM.
_TIMEOUTS = (2.0, 3.0)
# The time for which waiting notices are still sent when the process is stopped, in seconds.
_FAREWELL = 1.0
# The pauses between attempts, in seconds: the first one is doubled up to the longest one.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
# The maximum number of waiting notices, and the time in seconds for which a notice is retried. When the queue is full,
# the oldest notice is dropped.
_MOST_WAITING, _LONGEST_WAIT = 1_000, 24 * 3600.0
# HTTP statuses after which a notice is dropped, because a retry would be refused, too.
_REFUSALS = frozenset({400, 410, 413, 415, 422})
_LEAST_SECRET = 16
_REMEDY = (
    "{}. The delivery of the notice is retried; only notices are delayed. Notices in the queue: {}. Check the "
    "receiver, the URL in --webhook and, if the requests are signed, the secret in --webhookSecretFile."
)


@dataclass(frozen=True)
class WebhookOptions:
    """The URL to which notices are posted, and the file with the secret that signs them (None: unsigned)."""

    url: str
    secret_file: Path | None = None


def read_options(values: Mapping[str, Any]) -> WebhookOptions | None:
    """Return the webhook that the options configure; None without a webhook. Raises ValueError if they are invalid."""
    url, secret_file = values["webhook"], values["webhookSecretFile"]
    if not url:
        if secret_file:
            raise ValueError(
                "webhookSecretFile is set, but webhook is not: set webhook to the URL that receives the notices, or "
                "remove webhookSecretFile"
            )
        return None
    reason = _why_not_usable(url)
    if reason is not None:
        # The text must not contain the URL, because its path is often a secret.
        raise ValueError(
            f"webhook cannot be used: {reason}. Give a URL such as https://alerts.example/syncsvc"
        )
    return WebhookOptions(url, Path(secret_file) if secret_file else None)


def _why_not_usable(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises ValueError if it is not a port
    except ValueError:
        # The text of the error may contain a part of a password.
        return "the value is not a valid URL"
    if parts.scheme not in ("http", "https"):
        return "the URL must begin with http:// or https://"
    if not parts.hostname:
        return "the URL has no host name"
    if parts.username is not None or parts.password is not None:
        return (
            "the URL must not contain a user name or a password; give webhookSecretFile, so that the receiver can "
            "check signatures"
        )
    if any(not "!" <= each <= "~" for each in url):
        return "the URL contains spaces or characters that are not ASCII"
    return None


def origin(url: str) -> str:
    """Return the scheme, host and port of a URL, without its path and query, which are often secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


class SecretFile:
    """A file with the secret that signs notices. Raises OperationError InvalidWebhookSecret if it cannot be used."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._secret = _read_secret(path)

    def reload(self) -> None:
        """Read the file again. Raise OperationError, and keep the former secret, if the file cannot be used."""
        self._secret = _read_secret(self._path)

    def signature(self, body: bytes, at: int) -> str:
        """Return the value of the signature header for a body that is sent at the time `at`, in UNIX seconds."""
        digest = hmac.new(self._secret, b"%d." % at + body, sha256).hexdigest()
        return f"t={at},v1={digest}"


def _read_secret(path: Path) -> bytes:
    try:
        secret = read_private(path).strip()
    except ValueError as error:
        raise _invalid(f"The webhook's secret file {path} cannot be used: {error}.") from error
    if len(secret) < _LEAST_SECRET or len(secret.split()) != 1:
        text = f"the file must contain one line with at least {_LEAST_SECRET} characters without spaces"
        raise _invalid(f"The webhook's secret file {path} cannot be used: {text}.")
    return secret


def _invalid(description: str) -> OperationError:
    return OperationError(INVALID_WEBHOOK_SECRET, description)


@dataclass(frozen=True)
class WebhookFigures:
    """The numbers of delivered notices, failed attempts, dropped notices, and notices that wait in the queue."""

    delivered: int = 0
    failed: int = 0
    dropped: int = 0
    waiting: int = 0


def metrics_of(prefix: str) -> tuple[Metric[WebhookFigures], ...]:
    """Return the table of the metrics of a webhook. Their names begin with `prefix`."""
    return (
        Metric(
            Kind.COUNTER,
            f"{prefix}_webhook_notices_total",
            "Notices that the receiver of the webhook has accepted (delivered), and notices that were dropped because "
            "the receiver refused them, they waited too long, or the queue was full (dropped); only with --webhook.",
            ("outcome",),
            lambda figures: {("delivered",): figures.delivered, ("dropped",): figures.dropped},
        ),
        Metric(
            Kind.COUNTER,
            f"{prefix}_webhook_failures_total",
            "Failed attempts to deliver a notice; only with --webhook.",
            (),
            single(lambda figures: figures.failed),
        ),
        Metric(
            Kind.GAUGE,
            f"{prefix}_webhook_waiting",
            "Notices that wait for delivery; only with --webhook.",
            (),
            single(lambda figures: figures.waiting),
        ),
    )


@dataclass(frozen=True)
class _Queued:
    body: bytes
    # When the notice was posted, in seconds of the monotonic clock.
    at: float


class Webhook:
    """The queue of the notices to one URL. One thread calls `run`, which sends them; any thread may use the rest."""

    def __init__(self, options: WebhookOptions, **sender: str) -> None:
        """Create an empty queue of notices; `run` sends them.

        The keyword arguments `sender` are added to every notice as fields. Raises OperationError InvalidWebhookSecret.
        """
        self._sender = {"version": VERSION, "host": socket.gethostname(), **sender}
        self._process = token_hex(8)
        self.secret = SecretFile(options.secret_file) if options.secret_file else None
        self._url = options.url
        self._changed = threading.Condition()  # guards everything below
        self._queue: deque[_Queued] = deque()
        self._figures = WebhookFigures()
        self._posted = 0

    @property
    def figures(self) -> WebhookFigures:
        with self._changed:
            return replace(self._figures, waiting=len(self._queue))

    def post(self, event: str, at: float, **fields: Any) -> None:
        """Add a notice of an event to the queue, without waiting. If the queue is full, drop the oldest notice.

        `at` is the time of the event, in UNIX seconds. `fields` are added to the notice.
        """
        with self._changed:
            self._posted += 1
            notice = {
                "id": f"{self._process}-{self._posted}",
                "number": self._posted,
                "time": _shown(at),
                "event": event,
                **self._sender,
                **fields,
            }
            queued = _Queued(json.dumps(redacted(notice)).encode(), monotonic())
            if len(self._queue) == _MOST_WAITING:
                self._queue.popleft()
                self._count(dropped=1)
            self._queue.append(queued)
            self._changed.notify()

    def run(self, stop: StopToken) -> None:
        """Send notices until stopped; then try once to send the waiting notices, and raise `Cancelled`."""
        with requests.Session() as session:
            # Without this, the library would send the password that a .netrc file contains for the host.
            session.auth = _no_credentials
            try:
                while True:
                    self._deliver(session, stop)
            except Cancelled:
                self._say_farewell(session)
                raise

    def _oldest(self, stop: StopToken) -> _Queued:
        """Wait for a notice, and return the oldest one, which stays in the queue. Raises `Cancelled` when stopped."""
        with self._changed:
            stop.check()
            while not self._queue:
                stop.wait(self._changed)
            return self._queue[0]

    def _deliver(self, session: requests.Session, stop: StopToken) -> None:
        """Send the oldest notice until the receiver accepts or refuses it, or it is too old.

        If the full queue drops the notice, continue with the next one. Raises `Cancelled` when stopped.
        """
        notice = self._oldest(stop)
        wait, pause = None, _FIRST_PAUSE
        try:
            while (problem := self._send(session, notice, *_TIMEOUTS)) is not None:
                if monotonic() - notice.at > _LONGEST_WAIT:
                    self._remove(notice, dropped=1)
                    return
                wait = wait or waits.begin(
                    f"No notices are delivered to the webhook {origin(self._url)}", ""
                )
                wait.remedy = _REMEDY.format(problem, self.figures.waiting)
                stop.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                notice = self._oldest(stop)
        finally:
            if wait is not None:
                waits.end(wait)

    def _say_farewell(self, session: requests.Session) -> None:
        """Try once to send the waiting notices; stop if one cannot be delivered. Begin no attempt after one second."""
        end = monotonic() + _FAREWELL
        with self._changed:
            waiting = list(self._queue)
        for notice in waiting:
            left = end - monotonic()
            if left <= 0 or self._send(session, notice, left, left) is not None:
                return

    def _send(
        self, session: requests.Session, notice: _Queued, connect: float, answer: float
    ) -> str | None:
        """Send a notice once. Return the reason for a retry; None if the notice was delivered, or refused and dropped.

        `connect` and `answer` are the timeouts for the connection and for the answer, in seconds.
        """
        try:
            with session.post(
                self._url,
                data=notice.body,
                headers=self._headers(notice.body),
                timeout=(connect, answer),
                # A redirect would turn the POST into a GET, or send the notice to a host that was not configured.
                allow_redirects=False,
                # The body of the answer is not read.
                stream=True,
            ) as response:
                status = response.status_code
        except (OSError, ValueError) as error:
            # Not every error is a RequestException: a wrong REQUESTS_CA_BUNDLE, for example, causes a plain OSError.
            self._count(failed=1)
            return _reason(error)
        if 200 <= status < 300:
            self._remove(notice, delivered=1)
            return None
        self._count(failed=1)
        if status in _REFUSALS:
            _log.warning(
                "The receiver of the webhook has refused a notice, which is dropped. Correct the receiver, or "
                "the URL in --webhook: the field `status` is the HTTP status of the answer.",
                extra={"status": status},
            )
            self._remove(notice, dropped=1)
            return None
        redirect = ", and redirects are not followed" if 300 <= status < 400 else ""
        return f"The receiver answered with status {status}{redirect}"

    def _headers(self, body: bytes) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "User-Agent": f"syncsvc/{VERSION}"}
        if self.secret is not None:
            headers[SIGNATURE] = self.secret.signature(body, int(time()))
        return headers

    def _remove(self, notice: _Queued, **outcome: int) -> None:
        """Remove a notice from the queue, and add `outcome`, such as `delivered=1`, to the figures of the webhook.

        No-op if the full queue has already dropped the notice.
        """
        with self._changed:
            if self._queue and self._queue[0] is notice:
                self._queue.popleft()
                self._count(**outcome)

    def _count(self, **more: int) -> None:
        with self._changed:
            sums = {name: getattr(self._figures, name) + count for name, count in more.items()}
            self._figures = replace(self._figures, **sums)


def secrets_of(webhook: Webhook | None) -> list[SecretFile]:
    """Return the secret files that the process reads again on SIGHUP; empty without a webhook or its secret."""
    return [] if webhook is None or webhook.secret is None else [webhook.secret]


def _shown(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _no_credentials(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _reason(error: OSError | ValueError) -> str:
    """Return the reason why a request failed.

    The reason does not contain the URL, unlike the text of some errors.
    """
    if type(error) is OSError and not error.strerror:
        # The library refuses a file, such as that in REQUESTS_CA_BUNDLE; the text names the file.
        return f"The request failed: {error}"
    if isinstance(error, requests.ConnectTimeout):
        return f"The receiver did not accept a connection within {_TIMEOUTS[0]:.0f} s"
    if isinstance(error, requests.Timeout):
        return f"The receiver did not answer within {_TIMEOUTS[1]:.0f} s"
    for each in _causes(error):
        if isinstance(each, OSError) and each.strerror:
            return f"The receiver cannot be reached: {each.strerror}"
    return f"The request failed ({type(error).__name__})"


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
