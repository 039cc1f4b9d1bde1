"""The documentation page about webhooks lists all fields of notices; its example accepts only genuine signatures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from time import time
from typing import Any

import pytest

import syncsvc.reports.notices
import verifier.notices
from syncsvc.figures.progress import Progress
from syncsvc.state import State
from tests.support.receiver import SECRET, receiving, write_secret
from tests.support.waiting import wait_for
from tests.unit.syncsvc.records import known, run_record
from verifier.compare.check_progress import CheckProgress, Phase
from verifier.runtime.tasks import Cancelled, StopToken
from verifier.runtime.waits import LongWait
from verifier.runtime.webhook import SIGNATURE, Webhook, WebhookOptions

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "alert.rst").read_text()
WAITS = (LongWait("A call fails", "Look.", 20.0),)


def documented(title: str) -> set[str]:
    """Return the names of the fields that the page lists after the comment `fields of TITLE`."""
    part = PAGE.partition(f".. fields of {title}\n")[2].partition("\n.. ")[0]
    return {
        name for line in re.findall(r"^``.*``$", part, re.M) for name in line[2:-2].split("``, ``")
    }


def of_sync() -> list[dict[str, Any]]:
    progress = Progress()
    progress.enter(State.RUNNING)
    progress.set(waits=WAITS)
    sync = known(run_record(), progress.snapshot)
    told, first = syncsvc.reports.notices.news(syncsvc.reports.notices.Told(), sync, 0.0)
    progress.set(waits=())
    _, last = syncsvc.reports.notices.news(told, known(run_record(), progress.snapshot), 0.0)
    return [{"event": each.event, **each.fields} for each in first + last]


def of_verifier() -> list[dict[str, Any]]:
    checking = CheckProgress(Phase.CHECK, 0, started=1.0)
    told, first = verifier.notices.news(verifier.notices.Told(), checking, WAITS, 0.0)
    _, last = verifier.notices.news(told, checking, (), 0.0)
    return [{"event": each.event, **each.fields} for each in first + last]


@pytest.mark.parametrize(
    "title, notices, sender",
    [("the sync service", of_sync(), {"instance"}), ("the verifier", of_verifier(), set())],
)
def test_every_field_is_documented(
    title: str, notices: list[dict[str, Any]], sender: set[str]
) -> None:
    common = {"id", "number", "time", "event", "program", "version", "host", "warning"}
    assert documented("every notice") == common
    assert len(notices) == 3
    for each in notices:
        assert {*each} | sender == documented(title) | {"event", "warning"}
        assert f"``{each['event']}``" in PAGE


def test_the_receiver_of_the_page_accepts_a_signature(tmp_path: Path) -> None:
    (code,) = re.findall(r"code-block:: python\n\n((?:    .*\n|\n)+)", PAGE)
    names: dict[str, Any] = {}
    exec(re.sub("^    ", "", code, flags=re.M), names)
    with receiving() as receiver:
        hook = Webhook(WebhookOptions(receiver.url, Path(write_secret(tmp_path))), program="x")
        hook.post("state", time())
        stop = StopToken()
        stop.stop("at once")
        with pytest.raises(Cancelled):
            hook.run(stop)
        wait_for(lambda: receiver.bodies, "a notice")
    header, body = receiver.headers[0][SIGNATURE], receiver.bodies[0]
    assert names["is_genuine"](header, body, SECRET)
    assert not names["is_genuine"](header, body + b" ", SECRET)
    assert not names["is_genuine"](header, body, f"{SECRET}x")
    old = header.replace(re.findall(r"t=(\d+)", header)[0], "1700000000")
    assert not names["is_genuine"](old, body, SECRET)
    assert {*json.loads(body)} == documented("every notice") - {"warning"}
