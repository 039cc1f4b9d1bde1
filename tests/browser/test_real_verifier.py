"""Tests the verifier's page with real checks: one that finds differences and then one that passes.

Other tests show the page while a check runs, and use a large integer in a document filter.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Locator

from tests.browser.chromium import PHONE, Visit
from tests.browser.conftest import Visits
from tests.browser.scenes import HOSTILE
from tests.support.pair import Pair
from tests.support.verifier import Verifier

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
# JavaScript numbers cannot represent this number exactly.
LARGE = 2**60 + 1


@pytest.fixture
def verifier(pair: Pair, tmp_path: Path) -> Iterator[Verifier]:
    options = ("--verifyAll", "--graceSeconds", "0")
    for client in (pair.source.client, pair.destination.client):
        client.d.c.insert_many({"_id": n, "n": n} for n in range(500))
        client.shop[HOSTILE].insert_many({"_id": n, HOSTILE: n} for n in range(20))
    with Verifier(pair.source.uri, pair.destination.uri, tmp_path, *options).running() as process:
        yield process


def test_an_operator_checks_with_the_page(pair: Pair, verifier: Verifier, visits: Visits) -> None:
    pair.destination.client.shop[HOSTILE].update_one({"_id": 7}, {"$set": {HOSTILE: -1}})
    pair.source.client.d.c.create_index("n")
    pair.source.client.d.large.insert_one({"_id": LARGE})
    pair.destination.client.d.create_collection("large")
    visit: Visit = visits(f"http://127.0.0.1:{verifier.port}/")
    visit.wait_for_text("#sentence", "No check is running, and there is no result to show.")
    assert "/api/v1/check" in visit.text("#next code")
    link = visit.page.get_by_role("link", name="Report")
    assert link.count() == 0, "there is nothing to report yet"
    check(visit)
    visit.wait_for_text("#state", "FAILED")
    visit.wait_for_text("#sentence", "the clusters differ")
    assert "DIFFERENT" in visit.text("#tiles")
    assert_differences_are_shown(visit)
    visit.assert_accessible()
    visit.shoot("verifier-failed")
    with visit.context.expect_page() as opened:
        link.click()
    opened.value.get_by_text("The check has failed: the clusters differ.").wait_for()
    report = visits(opened.value.url)
    for scheme in SCHEMES:
        report.page.emulate_media(color_scheme=scheme)
        report.assert_accessible()
        report.shoot(f"verifier-report-{scheme}")
    assert "The check has failed" in report.text(".headline")
    assert report.page.locator("img, script, link").count() == 0
    pair.destination.client.shop[HOSTILE].update_one({"_id": 7}, {"$set": {HOSTILE: 7}})
    pair.destination.client.d.c.create_index("n")
    pair.destination.client.d.large.insert_one({"_id": LARGE})
    check(visit)
    visit.wait_for_text("#state", "PASSED")
    assert "Applications can switch to the destination, if everything" in visit.text("#next")
    visit.wait_for_text("#commands", "writesOff")
    for size, scheme in ((PHONE, "light"), ((1280, 900), "dark")):
        other = visits(f"http://127.0.0.1:{verifier.port}/", size=size, scheme=scheme)
        other.wait_for_text("#state", "PASSED")
        other.wait_for_text(".row", HOSTILE)
        assert other.page.evaluate("document.documentElement.scrollWidth") <= size[0]
        other.assert_accessible()
        other.shoot(f"verifier-passed-{scheme}")
    pair.assert_equal()


def test_the_page_follows_a_running_check(pair: Pair, verifier: Verifier, visits: Visits) -> None:
    pair.destination.client.shop[HOSTILE].update_one({"_id": 7}, {"$set": {HOSTILE: -1}})
    verifier.check()
    verifier.wait_for_generation(1)
    for scheme in SCHEMES:
        visit = visits(f"http://127.0.0.1:{verifier.port}/", scheme=scheme)
        visit.wait_for_text("#sentence", "compares the documents that change")
        visit.wait_for_text(".row", HOSTILE)
        visit.assert_accessible()
        visit.shoot(f"verifier-running-{scheme}")


def test_a_large_integer_in_a_filter_is_exact(
    pair: Pair, verifier: Verifier, visits: Visits
) -> None:
    # JavaScript would round LARGE to LARGE - 1, the `_id` of the document that exists on both clusters.
    pair.source.client.d.large.insert_many([{"_id": LARGE - 1}, {"_id": LARGE}])
    pair.destination.client.d.large.insert_one({"_id": LARGE - 1})
    visit = visits(f"http://127.0.0.1:{verifier.port}/")
    visit.press("check")
    visit.page.get_by_label("Only documents").fill(f'{{"_id": {LARGE}}}')
    visit.confirm("Start")
    visit.press("writesOff")
    visit.confirm("End the check")
    visit.wait_for_text("#state", "FAILED")


def check(visit: Visit) -> None:
    visit.press("check")
    dialog = visit.page.get_by_role("dialog")
    dialog.get_by_label("Only documents").fill("{")
    dialog.get_by_role("button", name="Start", exact=True).click()
    visit.wait_for_text("dialog .problem", "JSON")
    dialog.get_by_label("Only documents").fill("")
    visit.confirm("Start")
    visit.press("writesOff")
    visit.confirm("End the check")


def has_count(dialog: Locator) -> bool:
    return dialog.locator(".difference").filter(has_text="count").count() == 1


def assert_differences_are_shown(visit: Visit) -> None:
    page = visit.page
    dialog = page.get_by_role("dialog")
    # The dialog of a namespace lists only the differences of this namespace.
    for name, text, parts in (
        (HOSTILE, "_id 7 (int) is different", (HOSTILE,)),
        ("d.c", "index n_1: missing on the destination", ()),
        ("d.large", f'_id "{LARGE}" (long) is missing on the destination', ()),
    ):
        page.locator(".row .link").filter(has_text=name).click()
        dialog.locator(".difference").filter(has_text=text).wait_for()
        # If a document is missing, the numbers of documents may differ, too.
        assert dialog.locator(".difference").count() == 1 + (
            name == "d.large" and has_count(dialog)
        )
        assert dialog.locator(".difference li code").all_inner_texts() == [*parts]
        page.keyboard.press("Escape")
        dialog.wait_for(state="detached")
