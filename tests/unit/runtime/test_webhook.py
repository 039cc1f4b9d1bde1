"""Notices reach the webhook in order, and are signed if there is a secret. No notice or error text shows a secret.

A broken receiver delays notices, or causes them to be dropped; nothing else waits for it.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.receiver import PATH, SECRET, Receiver, receiving, write_secret
from tests.support.waiting import wait_for
from verifier.runtime import logs, waits, webhook
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import Cancelled, StopToken, TaskGroup
from verifier.runtime.webhook import SIGNATURE, Webhook, WebhookOptions, metrics_of, read_options


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "_FIRST_PAUSE", 0.05)
    monkeypatch.setattr(webhook, "_LONGEST_PAUSE", 0.2)


@contextmanager
def running(hook: Webhook) -> Iterator[StopToken]:
    stop = StopToken()
    with suppress(Cancelled), TaskGroup("test", stop) as group:
        group.spawn("webhook", hook.run, stop)
        try:
            yield stop
        finally:
            stop.stop("the test is over")


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def test_notices_are_signed_numbered_and_in_order(receiver: Receiver, tmp_path: Path) -> None:
    secret_file = Path(write_secret(tmp_path))
    hook = Webhook(WebhookOptions(receiver.url, secret_file), program="x")
    for number in range(20):
        hook.post("state", 1_700_000_000.25, state=str(number))
    with running(hook):
        wait_for(lambda: len(receiver.bodies) == 20, "all notices")
    receiver.assert_signed()
    receiver.assert_in_order()
    first = receiver.notices[0]
    assert (first["event"], first["program"], first["state"]) == ("state", "x", "0")
    assert (first["time"], first["host"]) == ("2023-11-14T22:13:20.250Z", socket.gethostname())
    assert receiver.headers[0]["Content-Type"] == "application/json"
    assert hook.figures.delivered == 20


def test_without_a_secret_notices_have_no_signature(receiver: Receiver) -> None:
    hook = Webhook(WebhookOptions(receiver.url))
    hook.post("state", 0.0)
    with running(hook):
        wait_for(lambda: receiver.bodies, "a notice")
    assert SIGNATURE not in receiver.headers[0]


def test_credentials_of_clusters_are_redacted(receiver: Receiver) -> None:
    hook = Webhook(WebhookOptions(receiver.url))
    hook.post("state", 0.0, warning={"text": "mongodb://me:S3cr3t@host/ fails"})
    with running(hook):
        wait_for(lambda: receiver.bodies, "a notice")
    assert b"S3cr3t" not in receiver.bodies[0]


def test_a_receiver_that_is_down_gets_everything_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "LONG", 0.0)
    port = closed_port()
    hook = Webhook(WebhookOptions(f"http://127.0.0.1:{port}{PATH}"))
    with running(hook):
        for number in range(5):
            hook.post("state", 0.0, state=str(number))
        (wait,) = wait_for(waits.long_waits, "a wait that is visible")
        assert wait.what == f"No notices are delivered to the webhook http://127.0.0.1:{port}"
        assert "Connection refused" in wait.remedy and "in the queue: 5" in wait.remedy
        assert "T0k3n" not in wait.text
        wait_for(lambda: hook.figures.failed >= 3, "retries")
        with receiving(port) as receiver:
            wait_for(lambda: len(receiver.bodies) == 5, "all notices")
            assert receiver.states() == ["0", "1", "2", "3", "4"]
            wait_for(lambda: not waits.long_waits(), "the end of the wait")
    assert (hook.figures.delivered, hook.figures.waiting) == (5, 0)


def test_a_malformed_answer_does_not_put_the_url_into_the_log(
    own_handlers: None, receiver: Receiver, tmp_path: Path
) -> None:
    logs.set_up(tmp_path, "test.log", "DEBUG")
    receiver.malformed = True
    hook = Webhook(WebhookOptions(receiver.url))
    hook.post("state", 0.0)
    with running(hook):
        wait_for(lambda: hook.figures.delivered, "a notice")
    assert "T0k3n" not in (tmp_path / "test.log").read_text()


@pytest.mark.parametrize(
    "url, variables",
    [
        ("https://127.0.0.1:{}/", {"REQUESTS_CA_BUNDLE": "/nowhere"}),
        ("http://127.0.0.1:{}/", {"http_proxy": "socks5://127.0.0.1:1"}),
        ("http://127.0.0.1:{}/", {"http_proxy": "nonsense://"}),
        ("http://" + "a" * 70 + ".invalid:{}/", {}),
        ("http://receiver.invalid:{}/", {}),
    ],
)
def test_no_wrong_setting_ends_the_thread(
    url: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    hook = Webhook(WebhookOptions(url.format(closed_port())))
    hook.post("state", 0.0)
    with running(hook):
        wait_for(lambda: hook.figures.failed >= 2, "retries")
    assert hook.figures.waiting == 1


def test_a_wrong_file_of_certificates_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "LONG", 0.0)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere")
    hook = Webhook(WebhookOptions("https://127.0.0.1:1/T0k3n"))
    hook.post("state", 0.0)
    with running(hook):
        (wait,) = wait_for(waits.long_waits, "a wait that is visible")
    assert "invalid path: /nowhere" in wait.remedy
    assert "T0k3n" not in wait.text


@pytest.mark.parametrize("status", [302, 307, 401, 404, 429, 500, 503])
def test_a_notice_is_sent_again_until_the_receiver_accepts_it(
    receiver: Receiver, status: int
) -> None:
    receiver.status = status
    hook = Webhook(WebhookOptions(receiver.url))
    hook.post("state", 0.0)
    with running(hook):
        wait_for(lambda: receiver.attempts >= 3, "retries")
        receiver.status = 200
        wait_for(lambda: receiver.bodies, "the notice")
    assert (hook.figures.delivered, hook.figures.dropped) == (1, 0)


def test_a_refused_notice_does_not_block_the_next_one(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.status = 422
    hook = Webhook(WebhookOptions(receiver.url))
    hook.post("state", 0.0, state="refused")
    with running(hook):
        wait_for(lambda: hook.figures.dropped == 1, "the refusal")
        receiver.status = 200
        hook.post("state", 0.0, state="accepted")
        wait_for(lambda: receiver.states() == ["accepted"], "the next notice")
    assert [each.levelno for each in caplog.records] == [logging.WARNING]


def test_a_full_queue_drops_the_oldest_notices(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "_MOST_WAITING", 3)
    hook = Webhook(WebhookOptions(receiver.url))
    for number in range(5):
        hook.post("state", 0.0, state=str(number))
    assert (hook.figures.waiting, hook.figures.dropped) == (3, 2)
    with running(hook):
        wait_for(lambda: receiver.states() == ["2", "3", "4"], "the newest notices")


def test_a_dropped_notice_is_not_retried(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "_MOST_WAITING", 2)
    receiver.status = 500
    hook = Webhook(WebhookOptions(receiver.url))
    with running(hook):
        hook.post("state", 0.0, state="0")
        wait_for(lambda: hook.figures.failed, "an attempt")
        for number in range(1, 3):
            hook.post("state", 0.0, state=str(number))
        # The first of these attempts may have begun before the drop.
        failed = hook.figures.failed
        wait_for(lambda: hook.figures.failed >= failed + 2, "attempts after the drop")
        receiver.status = 200
        wait_for(lambda: hook.figures.delivered == 2, "the notices that were not dropped")
    assert receiver.states() == ["1", "2"]


def test_a_notice_that_waits_for_too_long_is_dropped(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "_LONGEST_WAIT", 0.1)
    receiver.status = 500
    hook = Webhook(WebhookOptions(receiver.url))
    hook.post("state", 0.0)
    with running(hook):
        wait_for(lambda: hook.figures.dropped == 1, "the drop")
    assert hook.figures.waiting == 0


def test_a_stop_does_not_wait_for_a_receiver_that_hangs(receiver: Receiver) -> None:
    receiver.hangs = True
    hook = Webhook(WebhookOptions(receiver.url))
    with running(hook) as stop:
        hook.post("state", 0.0)
        wait_for(lambda: receiver.attempts, "an attempt")
        began = monotonic()
        hook.post("state", 0.0)
        assert monotonic() - began < 1
        stop.stop("SIGTERM")
    # Less than the time that a process has to end.
    assert monotonic() - began < 6


def test_waiting_notices_are_sent_before_the_end(receiver: Receiver) -> None:
    hook = Webhook(WebhookOptions(receiver.url))
    stop = StopToken()
    for number in range(3):
        hook.post("state", 0.0, state=str(number))
    stop.stop("SIGTERM")
    with pytest.raises(Cancelled):
        hook.run(stop)
    assert receiver.states() == ["0", "1", "2"]


def test_a_stop_during_a_pause_makes_a_last_attempt(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "_FIRST_PAUSE", 60.0)
    receiver.status = 500
    hook = Webhook(WebhookOptions(receiver.url))
    hook.post("state", 0.0, state="1")
    hook.post("state", 0.0, state="2")
    with running(hook) as stop:
        wait_for(lambda: hook.figures.failed, "a failed attempt")
        receiver.status = 200
        stop.stop("SIGTERM")
    assert receiver.states() == ["1", "2"]


def test_no_credentials_of_a_netrc_file_are_sent(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password S3cr3t\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    hook = Webhook(WebhookOptions(receiver.url))
    hook.post("state", 0.0)
    with running(hook):
        wait_for(lambda: receiver.bodies, "a notice")
    assert "Authorization" not in receiver.headers[0]


def test_the_proxy_of_the_environment_is_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", "http://" + urlsplit(receiver.url).netloc)
    hook = Webhook(WebhookOptions("http://receiver.invalid/hook"))
    hook.post("state", 0.0)
    with running(hook):
        wait_for(lambda: receiver.bodies, "a notice at the proxy")
    assert receiver.headers[0]["Host"] == "receiver.invalid"


@pytest.mark.parametrize(
    "url, reason",
    [
        ("alerts.example/x", "the URL must begin with http:// or https://"),
        ("ftp://alerts.example/x", "the URL must begin with http:// or https://"),
        ("https:///x", "the URL has no host name"),
        ("https://me:S3cr3t@alerts.example/", "the URL must not contain a user name or a password"),
        ("https://alerts.example:http/S3cr3t", "the value is not a valid URL"),
        ("https://[::1/S3cr3t", "the value is not a valid URL"),
        ("https://user:S3cr3t/x@host/", "the value is not a valid URL"),
        ("https://alerts.example/a b", "the URL contains spaces"),
        ("https://alerts.example/\u00e4", "the URL contains spaces"),
    ],
)
def test_a_wrong_url_is_refused_without_showing_it(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^webhook cannot be used: {reason}") as raised:
        read_options({"webhook": url, "webhookSecretFile": None})
    assert "S3cr3t" not in str(raised.value)


def test_a_secret_needs_a_url(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="^webhookSecretFile is set, but webhook is not"):
        read_options({"webhook": None, "webhookSecretFile": "x"})
    assert read_options({"webhook": None, "webhookSecretFile": None}) is None


@pytest.mark.parametrize(
    "content, mode, reason",
    [
        (None, 0o600, "cannot be read: No such file or directory"),
        ("", 0o600, "must contain one line with at least 16 characters"),
        ("too short", 0o600, "must contain one line with at least 16 characters"),
        (f"{SECRET}\n{SECRET}", 0o600, "must contain one line with at least 16 characters"),
        (SECRET, 0o644, "can be accessed by other users"),
    ],
)
def test_a_wrong_secret_file_is_refused(
    tmp_path: Path, content: str | None, mode: int, reason: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    with pytest.raises(OperationError, match=reason) as raised:
        Webhook(WebhookOptions("http://localhost/", path))
    assert raised.value.kind.name == "InvalidWebhookSecret"
    assert str(path) in str(raised.value) and SECRET not in str(raised.value)


def test_a_secret_is_replaced_without_a_restart(receiver: Receiver, tmp_path: Path) -> None:
    path = Path(write_secret(tmp_path))
    hook = Webhook(WebhookOptions(receiver.url, path))
    write_secret(tmp_path, "another-secret-of-both")
    assert hook.secret is not None
    hook.secret.reload()
    os.unlink(path)
    with pytest.raises(OperationError):
        hook.secret.reload()
    hook.post("state", 0.0)
    with running(hook):
        wait_for(lambda: receiver.bodies, "a notice")
    receiver.assert_signed("another-secret-of-both")


def test_the_metrics_of_a_webhook(receiver: Receiver) -> None:
    hook = Webhook(WebhookOptions(receiver.url))
    hook.post("state", 0.0)
    values: dict[str, Any] = {each.name: each.read(hook.figures) for each in metrics_of("m")}
    assert values == {
        "m_webhook_notices_total": {("delivered",): 0, ("dropped",): 0},
        "m_webhook_failures_total": {(): 0},
        "m_webhook_waiting": {(): 1},
    }
