"""Tests the page in states that a real sync rarely reaches: the real app shows a state that the test chooses."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from flask import Flask, request

from syncsvc.desired import DesiredState, Goal
from syncsvc.figures.progress import ProgressSnapshot
from syncsvc.reports.sync import Sync
from syncsvc.saved.journal import Sender
from tests.browser.chromium import PHONE, Visit
from tests.browser.conftest import Stages, Visits
from tests.browser.scenes import (
    HOSTILE,
    SCENES,
    committed,
    copying,
    differing,
    failed,
    follower,
    ready,
    several,
    short_of_oplog,
    standby,
)
from tests.browser.stage import StagedService, on_stage
from tests.support.waiting import wait_for

Staged = tuple[StagedService, str]
MANY = 10_000
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.fixture
def stage(stages: Stages) -> Staged:
    return stages()


def test_every_state_is_accessible_in_light_and_dark(stage: Staged, visits: Visits) -> None:
    service, url = stage
    service.fill_history(clean=True)
    for name, scene in SCENES.items():
        service.staged = scene()
        visit = visits(url)
        visit.wait_for_text("#state", service.staged.state.value)
        if service.staged.collections:
            visit.page.locator(".row .link").first.wait_for()
        assert_both_schemes(visit, name)


def assert_both_schemes(visit: Visit, name: str) -> None:
    for scheme in SCHEMES:
        visit.page.emulate_media(color_scheme=scheme)
        visit.assert_accessible()
        visit.shoot(f"{name}-{scheme}")


def test_a_warning_links_to_its_remedy(stage: Staged, visits: Visits) -> None:
    service, url = stage
    service.staged = short_of_oplog()
    visit = visits(url)
    visit.wait_for_text("#warnings", "The oplog of the source (51200 MB) is short")
    links = visit.page.locator("#warnings a")
    targets = [links.nth(n).get_attribute("href") for n in range(links.count())]
    assert [str(each).partition("#")[2] for each in targets] == [
        *("the-oplog-is-too-short", "a-call-does-not-succeed")
    ]
    service.staged = copying()
    visit.page.locator("#warnings-section").wait_for(state="hidden")


def test_ten_thousand_collections(stage: Staged, visits: Visits) -> None:
    service, url = stage
    service.staged = copying(MANY, 4_000)
    visit = visits(url)
    page = visit.page
    visit.wait_for_text("#toolbar", "10,000 collections")
    first = page.locator(".row .link").first
    assert first.inner_text() == "shop0.orders_00000"
    # Only the visible rows exist, wherever the table is scrolled to.
    for share in (0.5, 0.9, 1.0):
        page.locator(".scroll").evaluate(
            "(e, share) => e.scrollTop = share * e.scrollHeight", share
        )
        wait_for(lambda: 10 < page.locator(".row .link").count() < 60, "the rows are shown")
    visit.wait_for_text(".row .link", "shop6.orders_09995")
    page.get_by_role("button", name="Size", exact=True).click()
    wait_for(lambda: "155 GB" in page.locator(".row").first.inner_text(), "the largest is first")
    page.get_by_label("Phase", exact=True).select_option("copying")
    visit.wait_for_text("#toolbar", "2 collections")
    page.get_by_label("Phase", exact=True).select_option("")
    page.get_by_label("Search collections").fill("09876")
    visit.wait_for_text("#toolbar", "1 collection")
    assert page.locator(".row .link").all_inner_texts() == ["shop6.orders_09876"]
    assert longest_task(visit) < 1.0


def longest_task(visit: Visit) -> float:
    """Scroll through the whole table, and return the duration of the slowest frame in seconds.

    If the page rendered all rows of the table, the first frame alone would take many seconds.
    """
    visit.page.get_by_label("Search collections").fill("")
    visit.wait_for_text("#toolbar", "10,000 collections")
    script = """async () => {
        const element = document.querySelector(".scroll");
        let longest = 0;
        for (let n = 0; n < 60; n += 1) {
            const before = performance.now();
            element.scrollTop = (n / 60) * element.scrollHeight;
            element.dispatchEvent(new Event("scroll"));
            await new Promise(requestAnimationFrame);
            longest = Math.max(longest, performance.now() - before);
        }
        return longest / 1000;
    }"""
    return float(visit.page.evaluate(script))


def test_each_of_several_instances_shows_the_copy(stage: Staged, visits: Visits) -> None:
    service, url = stage
    service.fill_history()
    service.staged = several()
    visit = visits(url)
    visit.wait_for_text("#tiles", "480 GB of 480 GB")
    assert "100 %" in visit.text("#tiles")
    # During the copy, only the coordinator knows what the others have copied.
    service.staged = follower()
    visit.wait_for_text("#tiles", "171 GB by this instance, of 480 GB in all")
    assert "%" not in visit.text("#tiles") and "TOO SHORT" not in visit.text("#tiles")
    assert "%" not in visit.text("#sentence")


def test_a_declared_commit_is_announced(stage: Staged, visits: Visits) -> None:
    service, url = stage
    sync = copying()
    assert sync.record is not None
    # With other options, the declared state would have no effect on this sync.
    service.staged = replace(sync, goal=Goal(DesiredState.COMMITTED, sync.record.options))
    visit = visits(url)
    visit.wait_for_text("#declared", "The configuration declares desiredState committed.")
    visit.wait_for_text("#next", "commits by itself")
    visit.assert_accessible()
    service.staged = ready()
    visit.page.locator("#declared").wait_for(state="hidden")


def test_a_commit_is_sent_to_every_instance(stage: Staged, visits: Visits) -> None:
    service, url = stage
    service.staged = replace(several(), can_commit=True)
    visit = visits(url)
    visit.press("commit")
    visit.wait_for_text("dialog", "send the commit to every instance")
    service.staged = ready()


def test_names_are_never_markup(stage: Staged, visits: Visits) -> None:
    service, url = stage
    service.staged = SCENES["failed"]()
    visit = visits(url)
    visit.wait_for_text("#failure", HOSTILE)
    visit.wait_for_text(".scroll", HOSTILE)
    assert visit.page.locator("img").count() == 1, "only the logo"
    # Even a script that tries to insert markup is refused by the browser.
    refused = visit.page.evaluate(
        "(() => { try { document.body.innerHTML = '<b>'; } catch (e) { return e.name; } })()"
    )
    assert refused == "TypeError"
    visit.problems.clear()


@pytest.mark.parametrize("command", ["resume", "repair"])
def test_after_a_failure_the_dialogs_say_where_the_applications_belong(
    stage: Staged, visits: Visits, command: str
) -> None:
    service, url = stage
    service.staged = SCENES["failed"]()
    visit = visits(url)
    visit.wait_for_text("#next", "The applications can stay on the source (cluster0)")
    visit.press(command)
    visit.wait_for_text("dialog", "The applications can stay on the source (cluster0)")


def test_the_next_command_means_the_same_in_a_shell(stage: Staged, visits: Visits) -> None:
    _, url = stage
    visit = visits(url)
    body = {"confirm": 'it\'s; $(touch x) \x9b\u202e "quoted"'}
    shown = visit.page.evaluate(
        """async (body) => {
            const { showCommand } = await import("/page/command.js");
            return showCommand({ hasToken: false }, { command: "reset", body }).querySelector("code").textContent;
        }""",
        body,
    )
    assert shown.isascii() and shown.isprintable()
    *_, address, _, data = shlex.split(shown)
    assert (address, json.loads(data)) == (f"{url}api/v1/reset", body)


def test_on_a_phone_nothing_is_cut_off(stage: Staged, visits: Visits) -> None:
    service, url = stage
    service.fill_history()
    for scene in (copying, differing, standby):
        service.staged = scene()
        visit = visits(url, size=PHONE)
        visit.page.locator("#state:visible").wait_for()
        width = visit.page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE[0]
        visit.shoot(f"{scene.__name__}-phone")


def test_a_standby_points_to_the_active_daemon(stage: Staged, visits: Visits) -> None:
    service, url = stage
    service.staged = standby()
    visit = visits(url)
    visit.wait_for_text("#sentence", "The active daemon runs on the host sync-a.example")
    for section in ("#tiles", "#charts-section", "#namespaces-section"):
        visit.page.locator(section).wait_for(state="hidden")
    assert visit.page.locator("#actions button:enabled:visible").count() == 0
    assert_both_schemes(visit, "standby")
    service.staged = ready()
    visit.page.locator(".row .link").first.wait_for()


def test_the_keyboard_is_enough(stage: Staged, visits: Visits) -> None:
    service, url = stage
    service.fill_history()
    service.staged = ready()
    visit = visits(url)
    page = visit.page
    button = page.locator('[data-command="commit"]:enabled')
    button.wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the state"
    button.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.closest('dialog') !== null")
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    assert page.evaluate("document.activeElement.dataset.command") == "commit"
    chart = page.locator(".chart .plot").first
    chart.locator("path.line").wait_for(state="attached")
    chart.focus()
    page.keyboard.press("Home")
    assert page.locator(".chart .tip").first.is_visible()


def test_an_operator_hears_what_changes(stage: Staged, visits: Visits) -> None:
    service, url = stage
    service.staged = copying()
    visit = visits(url)
    spoken = visit.page.locator("#announcement")
    assert spoken.get_attribute("aria-live") == "polite"
    wait_for(lambda: "collection copy" in str(spoken.text_content()), "the phase is announced")
    service.staged = ready()
    wait_for(
        lambda: "A commit is possible." in str(spoken.text_content()), "the commit is announced"
    )


def test_nothing_is_asked_while_the_page_is_hidden(stage: Staged, visits: Visits) -> None:
    service, url = stage
    visit = visits(url)
    visit.page.locator("#state:visible").wait_for()
    visit.page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    visit.page.wait_for_load_state("networkidle")
    before = len(visit.requests)
    visit.page.wait_for_timeout(5_000)
    assert len(visit.requests) == before
    service.staged = committed()
    visit.page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: false, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    visit.wait_for_text("#state", "COMMITTED")


def test_an_answer_that_has_not_changed_is_not_sent_again(stage: Staged, visits: Visits) -> None:
    _, url = stage
    visit = visits(url)
    statuses: list[int] = []
    visit.page.on("response", lambda response: statuses.append(response.status))

    def unchanged() -> bool:
        # The browser handles its answers only while a call waits for it.
        visit.page.wait_for_timeout(200)
        return 304 in statuses

    wait_for(unchanged, "an answer 304")


def test_a_daemon_that_ends_is_noticed(visits: Visits) -> None:
    with on_stage() as (service, url):
        visit = visits(url)
        visit.wait_for_text("#contact", "Live")
    visit.wait_for_text("#contact", "No answer from the daemon. Last answer at ")
    assert "No answer from the daemon" in str(visit.page.locator("#announcement").text_content())
    # The browser itself reports the refused connections.
    visit.problems.clear()


def test_without_an_answer_a_standby_names_the_active_daemon(visits: Visits) -> None:
    with on_stage() as (service, url):
        service.staged = standby()
        visit = visits(url, size=PHONE)
        visit.wait_for_text("#contact", "Live")
        visit.wait_for_text("#sentence", "This daemon is a standby.")
    visit.wait_for_text(
        "#contact",
        "The lease was last held by the daemon on sync-a.example, at 0.0.0.0:27182.",
    )
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    visit.problems.clear()


def require_a_token(app: Flask) -> None:
    """Refuse requests to the API without the token `secret`, as an API with tokens does."""

    @app.before_request
    def check() -> tuple[dict[str, object], int] | None:
        needed = request.path.startswith("/api/")
        if needed and request.headers.get("Authorization") != "Bearer secret":
            return {"success": False, "error": "Unauthorized", "errorDescription": "No."}, 401
        return None


def test_a_token_is_asked_for_and_kept(stages: Stages, visits: Visits) -> None:
    service, url = stages(require_a_token)
    service.staged = ready()
    visit = visits(url)
    dialog = visit.page.get_by_role("dialog")
    dialog.get_by_label("Token").fill("wrong")
    dialog.get_by_role("button", name="Sign in").click()
    visit.wait_for_text("dialog", "refused the token")
    visit.assert_accessible()
    dialog.get_by_label("Token").fill("secret")
    visit.confirm("Sign in")
    visit.wait_for_text("#state", "RUNNING")
    # An argument of curl with the token would show it to the other users of the machine.
    assert ' --header @"$HOME/syncsvc-header" ' in visit.text("#next code")
    assert "secret" not in visit.text("main")
    visit.page.reload()
    visit.wait_for_text("#state", "RUNNING")


def test_limits_are_shown_and_changed(stage: Staged, visits: Visits) -> None:
    service, url = stage
    service.staged = copying()
    service.change_limits({"copyBytesPerSecond": 20_000_000}, Sender())
    service.throttle()
    visit = visits(url)
    visit.wait_for_text("#limits", "Throttled: copyBytesPerSecond since")
    assert "20 MB/s" in visit.text("#limits")
    visit.press("limits")
    dialog = visit.page.get_by_role("dialog")
    dialog.get_by_label("Copy (MB/s)").fill("35")
    visit.shoot("limits")
    others = dialog.get_by_label("Time windows")
    shown = others.input_value()
    for wrong in ("[]", "null", "5"):
        others.fill(wrong)
        dialog.get_by_role("button", name="Save").click()
        visit.wait_for_text("dialog .problem", "must be an object")
    others.fill(shown)
    # Meanwhile, another operator changes another limit. Saving must not reset that limit.
    service.change_limits({"eventsPerSecond": 500}, Sender())
    visit.confirm("Save")
    visit.wait_for_text("#limits", "35 MB/s")
    visit.wait_for_text("#limits", "500")


def test_a_preflight_shows_missing_features_and_users(stage: Staged, visits: Visits) -> None:
    missing = {"feature": "aggregate", "cluster": "cluster0", "effect": "The copy is slower."}
    counts = {"users": 12, "roles": 2, "equal": 3, "kept": 1, "conflicts": 4}
    found = {
        **{"success": True, "violations": [], "warnings": [], "estimates": {}},
        **{"missingFeatures": [missing], "usersAndRoles": counts},
    }
    visit = visits(stage[1])
    visit.page.route("**/api/v1/preflight", lambda route: route.fulfill(json=found))
    visit.press("start")
    visit.page.get_by_role("dialog").get_by_role("button", name="Preflight").click()
    visit.wait_for_text("dialog", "Missing: aggregate on cluster0: The copy is slower.")
    shown = " ".join(visit.text("dialog").split())
    assert "Users to copy 12" in shown and "Prevent the start and the commit 4" in shown


def test_typed_options_are_sent_unchanged(stage: Staged, visits: Visits) -> None:
    """JavaScript would round the integers, move the field "2" to the front, and drop the first of two equal fields."""
    visit = visits(stage[1])
    visit.press("start")
    dialog = visit.page.get_by_role("dialog")

    def start(typed: str) -> str:
        dialog.get_by_label("More options").fill(typed)
        with visit.page.expect_request("**/api/v1/start") as sent:
            dialog.get_by_role("button", name="Start", exact=True).click()
        return str(sent.value.post_data)

    query = f'{{"_id": {{"$gt": {2**60 + 1}, "$lt": {{"$numberLong": "{2**60 + 3}"}}}}, "a": {{"b": 1, "2": 2}}}}'
    typed = f'"source": "x", "documentFilter": [{{"database": "d", "collection": "c", "filter": {query}}}]'
    sent = start(f"{{{typed}}}\n")
    assert sent.endswith(f",{typed}}}") and sent.count('"source"') == 1
    assert json.loads(sent)["buildIndexes"] == "beforeDataCopy"
    visit.wait_for_text("dialog .problem", "UnknownCluster")
    start('{"detectRandomId": true, "detectRandomId": false}')
    visit.wait_for_text("dialog .problem", "twice")
    assert json.loads(start(" { } "))["source"] == "cluster0"


@pytest.mark.parametrize(
    "scene", [committed, failed, ready, several], ids=lambda each: each.__name__
)
def test_the_report_is_one_accessible_file(
    stage: Staged, visits: Visits, scene: Callable[[], Sync]
) -> None:
    service, url = stage
    service.staged = scene()
    visit = visits(f"{url}api/v1/report?format=html")
    for scheme in SCHEMES:
        visit.page.emulate_media(color_scheme=scheme)
        visit.assert_accessible()
        visit.shoot(f"report-{scene.__name__}-{scheme}")
    assert visit.requests == [f"{url}api/v1/report?format=html"]
    assert visit.page.locator("img, script, link").count() == 0
    visit.page.emulate_media(media="print", color_scheme="dark")
    assert (
        visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        == "rgb(255, 255, 255)"
    )
    visit.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    visit.page.emulate_media(media="screen")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


def test_the_report_opens_from_the_page(stage: Staged, visits: Visits) -> None:
    service, url = stage
    service.staged = committed()
    visit = visits(url)
    with visit.context.expect_page() as opened:
        visit.page.get_by_role("link", name="Report").click()
    opened.value.get_by_text("The sync is committed. At the commit, everything").wait_for()


def test_with_a_token_the_report_is_downloaded(stages: Stages, visits: Visits) -> None:
    service, url = stages(require_a_token)
    service.staged = committed()
    visit = visits(url)
    visit.page.get_by_role("dialog").get_by_label("Token").fill("secret")
    visit.confirm("Sign in")
    with visit.page.expect_download() as download:
        visit.page.get_by_role("link", name="Report").click()
    assert download.value.suggested_filename == "syncsvc-report.html"
    assert "<!doctype html>" in Path(download.value.path()).read_text()


def test_the_charts_show_throttling(stage: Staged, visits: Visits) -> None:
    service, url = stage
    service.fill_history()
    service.staged = copying()
    visit = visits(url)
    chart = visit.page.locator(".chart").filter(has_text="Throttling")
    chart.locator("path.line").first.wait_for(state="attached")
    assert "copy" in chart.inner_text() and "change events" in chart.inner_text()


def test_the_page_prints(stage: Staged, visits: Visits) -> None:
    service, url = stage
    service.fill_history()
    service.staged = ready()
    visit = visits(url)
    visit.page.locator("#state:visible").wait_for()
    visit.page.emulate_media(media="print", color_scheme="light")
    assert not visit.page.locator("#actions").is_visible()
    assert visit.page.locator("#sentence").is_visible()
    visit.shoot("print")


def test_a_first_visit_without_a_sync(stage: Staged, visits: Visits) -> None:
    service, url = stage
    service.staged = replace(service.staged, snapshot=ProgressSnapshot())
    visit = visits(url)
    visit.wait_for_text("#sentence", "No sync was started.")
    visit.wait_for_text("#namespaces", "They are listed when a sync begins to copy them.")
    visit.wait_for_text("#commands", "This process has answered no command yet.")
    visit.assert_accessible()
