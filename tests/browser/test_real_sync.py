"""Tests the page with real syncs: one is operated from the page up to a reverse, another one is reset from the page."""

from __future__ import annotations

import json
from pathlib import Path

from tests.browser.chromium import Visit
from tests.browser.conftest import Visits
from tests.browser.scenes import HOSTILE
from tests.integration.test_embedded_verifier import behind_our_back, set_number
from tests.support.daemon import Daemon
from tests.support.pair import Pair
from tests.support.waiting import wait_for

POSSIBLE = "A commit is possible."
THROTTLING = "Throttling: threads that wait for a limit"


def fill(pair: Pair) -> None:
    client = pair.source.client
    client.d.c.insert_many({"_id": n, "n": n, "text": "x" * 200} for n in range(2_000))
    client.d.c.create_index("n")
    client.shop[HOSTILE].insert_many({"_id": n, HOSTILE: n} for n in range(20))


def row(visit: Visit, name: str) -> str:
    return visit.page.locator(".row").filter(has_text=name).inner_text()


def rows(visit: Visit) -> list[str]:
    return visit.page.locator(".row .link").all_inner_texts()


def test_an_operator_migrates_with_the_page(
    pair: Pair, daemon: Daemon, visits: Visits, tmp_path: Path
) -> None:
    fill(pair)
    visit: Visit = visits(f"http://127.0.0.1:{daemon.port}/")
    start(visit)
    visit.wait_for_text("#commit", POSSIBLE)
    assert_everything_is_shown(visit)
    repair_a_difference(pair, visit)
    pause_and_resume(pair, visit)
    commit(visit)
    pair.assert_equal()
    read_the_report(visit)
    reverse(visit)
    assert_commands_are_listed(visit)
    # The direction shows that the commands of the page have reversed the sync.
    assert daemon.progress()["directionMapping"]["Destination"].startswith("cluster0")
    pair.assert_equal()


def start(visit: Visit) -> None:
    visit.wait_for_text("#sentence", "No sync was started.")
    assert "/api/v1/start" in visit.text("#next code")
    visit.page.get_by_role("button", name="Copy the command").click()
    copied = visit.page.evaluate("navigator.clipboard.readText()")
    assert copied == visit.text("#next code")
    visit.press("start")
    dialog = visit.page.get_by_role("dialog")
    dialog.get_by_label("Reversible after the commit").check()
    dialog.get_by_label("Block user writes").select_option("sourceAndDestination")
    dialog.get_by_label("More options").fill("{")
    dialog.get_by_role("button", name="Start", exact=True).click()
    visit.wait_for_text("dialog .problem", "JSON")
    options = {"verification": {"repair": "never"}, "sharding": 1}
    dialog.get_by_label("More options").fill(json.dumps(options))
    dialog.get_by_role("button", name="Start", exact=True).click()
    visit.wait_for_text("dialog .problem", "InvalidRequest")
    dialog.get_by_label("More options").fill(json.dumps({"verification": {"repair": "never"}}))
    dialog.get_by_role("button", name="Preflight").click()
    visit.wait_for_text("dialog .findings", "A start would succeed now.")
    visit.confirm("Start")
    visit.wait_for_text("#state", "RUNNING")


def assert_everything_is_shown(visit: Visit) -> None:
    page = visit.page
    assert "cluster0" in visit.text("#route") and "cluster1" in visit.text("#route")
    assert "collection copy" in visit.text("#phases").lower()
    tiles = visit.text("#tiles")
    for text in ("100 %", "2,020 of 2,020", "2 of 2", "behind the source", "differences now"):
        assert text in tiles, tiles
    for label in ("Copy", "Change events per second", "Lag", "Latency of the clusters", THROTTLING):
        chart = page.locator(".chart").filter(
            has=page.get_by_role("heading", name=label, exact=True)
        )
        if label != "Copy":  # the copy may have ended before the first point
            chart.locator("path.line").first.wait_for(state="attached")
    assert len(rows(visit)) == 2 and HOSTILE in rows(visit)[1]
    assert "copied" in row(visit, "d.c") and "2,000" in row(visit, "d.c")
    visit.page.get_by_role("button", name="Documents", exact=True).click()
    wait_for(lambda: rows(visit)[0] == "d.c", "the largest is first")
    visit.page.get_by_label("Search collections").fill("IMG")
    wait_for(lambda: rows(visit) == [f"shop.{HOSTILE}"], "only one is left")
    visit.page.get_by_label("Search collections").fill("")
    wait_for(lambda: len(rows(visit)) == 2, "both are shown again")
    visit.assert_accessible()
    visit.shoot("real-running")


def repair_a_difference(pair: Pair, visit: Visit) -> None:
    behind_our_back(pair, set_number(7, -1))
    visit.wait_for_text("#tiles", "difference now")
    visit.page.get_by_label("Only with differences").check()
    wait_for(lambda: rows(visit) == ["d.c"], "only the differing collection is shown")
    visit.page.locator(".row .link").click()
    dialog = visit.page.get_by_role("dialog")
    dialog.locator(".difference").first.wait_for()
    assert dialog.locator(".difference").count() == 1
    assert "_id 7 (int) is different" in dialog.locator(".difference").inner_text()
    assert dialog.locator(".difference li code").inner_text() == "n"
    visit.assert_accessible()
    visit.shoot("real-difference")
    visit.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    visit.page.get_by_label("Only with differences").uncheck()
    visit.press("repair")
    dialog.get_by_role("button", name="Show the plan").click()
    visit.wait_for_text("dialog .findings", "d.c")
    visit.confirm("Repair")
    wait_for(lambda: "CLEAN" in visit.text("#tiles"), "the difference is repaired")
    assert pair.destination.client.d.c.find_one({"_id": 7}) == pair.source.client.d.c.find_one(
        {"_id": 7}
    )


def pause_and_resume(pair: Pair, visit: Visit) -> None:
    visit.press("pause")
    visit.confirm("Pause")
    visit.wait_for_text("#state", "PAUSED")
    visit.wait_for_text("#commit", "The sync is paused.")
    pair.source.client.d.c.insert_one({"_id": "in the pause"})
    visit.press("resume")
    visit.confirm("Resume")
    visit.wait_for_text("#state", "RUNNING")


def commit(visit: Visit) -> None:
    visit.wait_for_text("#commit", POSSIBLE)
    visit.press("commit")
    dialog = visit.page.get_by_role("dialog")
    dialog.get_by_label("Type cluster1 to confirm").fill("cluster0")
    dialog.get_by_role("button", name="Commit", exact=True).click()
    visit.wait_for_text("dialog .problem", "cluster1")
    dialog.get_by_label("Type cluster1 to confirm").fill("cluster1")
    visit.confirm("Commit")
    visit.wait_for_text("#state", "COMMITTED")
    visit.wait_for_text("#sentence", "Applications may write to the destination.")
    assert "commit completed" in visit.text("#phases").lower()


def read_the_report(visit: Visit) -> None:
    with visit.context.expect_page() as opened:
        visit.page.get_by_role("link", name="Report").click()
    page = opened.value
    page.get_by_text("The sync is committed. At the commit, everything").wait_for()
    assert page.get_by_role("rowheader", name=f"shop.{HOSTILE}").count() == 1
    assert "from 127.0.0.1" in page.get_by_role("region", name="Commits").inner_text()
    page.close()


def reverse(visit: Visit) -> None:
    visit.press("reverse")
    visit.confirm("Reverse")
    visit.wait_for_text("#commit", POSSIBLE)


def assert_commands_are_listed(visit: Visit) -> None:
    visit.wait_for_text("#commands", "reverse")
    listed = visit.text("#commands")
    for command in ("preflight", "start", "pause", "resume", "repair (dry run)", "commit"):
        assert command in listed
    assert "InvalidRequest" in listed and "127.0.0.1" in listed


def test_an_operator_gives_a_sync_up(pair: Pair, daemon: Daemon, visits: Visits) -> None:
    fill(pair)
    daemon.start()
    visit: Visit = visits(f"http://127.0.0.1:{daemon.port}/")
    visit.wait_for_text("#commit", POSSIBLE)
    visit.press("reset")
    dialog = visit.page.get_by_role("dialog")
    visit.wait_for_text("dialog .findings", "Drops the collections: d.c")
    assert HOSTILE in visit.text("dialog .findings")
    visit.assert_accessible()
    visit.shoot("real-reset")
    dialog.get_by_label("Type cluster1 to confirm").fill("cluster0")
    dialog.get_by_role("button", name="Reset", exact=True).click()
    visit.wait_for_text("dialog .problem", "cluster1")
    assert daemon.progress()["state"] == "RUNNING"
    dialog.get_by_label("Type cluster1 to confirm").fill("cluster1")
    visit.confirm("Reset")
    visit.wait_for_text("#sentence", "No sync was started.")
    assert "reset (dry run)" in visit.text("#commands")
    assert not pair.destination.client.d.list_collection_names()
