"""Runs headless Chromium, and records forbidden behaviour of a page: errors, and requests to other hosts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from tests.support.waiting import PATIENCE

_AXE = Path(__file__).with_name("axe.min.js")
_NAMES = ("chromium", "chromium-browser", "google-chrome")
# Chromium reports each answer with an error status on the console, even if the page handles the answer.
_EXPECTED = "Failed to load resource: the server responded with a status of"
_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb")
LAPTOP, PHONE = (1280, 900), (390, 844)


def program() -> str:
    """Return the program Chromium: the value of SYNCSVC_CHROMIUM, or the path of the first known name on PATH.

    Fail if there is none.
    """
    found = os.environ.get("SYNCSVC_CHROMIUM") or next(
        filter(None, map(shutil.which, _NAMES)), None
    )
    assert found, "Chromium is not installed: apt-get install chromium"
    return found


@contextmanager
def running() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page that is open in the browser. `close` raises AssertionError if the page has caused any problem.

    Problems are errors, warnings in the console, dialogs of the browser, and requests to other hosts. An answer with an
    error status is no problem.
    """

    def __init__(
        self, browser: Browser, url: str, size: tuple[int, int] = LAPTOP, scheme: Any = "light"
    ) -> None:
        width, height = size
        self.context: BrowserContext = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            reduced_motion="reduce",
            permissions=["clipboard-read", "clipboard-write"],
            timezone_id="UTC",
        )
        self.context.set_default_timeout(1000 * PATIENCE)
        self.page: Page = self.context.new_page()
        self.host = urlsplit(url).netloc
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self._on_request(request.url))
        self.page.goto(url)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(_EXPECTED):
            self.problems.append(f"console: {message.text}")

    def _on_request(self, url: str) -> None:
        self.requests.append(url)
        if not url.startswith("data:") and urlsplit(url).netloc != self.host:
            self.problems.append(f"request: {url}")

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def wait_for_text(self, selector: str, text: str) -> None:
        self.page.locator(selector).filter(has_text=text).first.wait_for()

    def button(self, command: str) -> Any:
        return self.page.locator(f'#actions [data-command="{command}"]')

    def press(self, command: str) -> None:
        """Wait until the button of a command is enabled, and press it; this opens the dialog of the command."""
        self.page.locator(f'#actions [data-command="{command}"]:enabled').click()

    def confirm(self, action: str) -> None:
        """Press the button `action` of the open dialog, and wait until the dialog is closed."""
        self.page.get_by_role("dialog").get_by_role("button", name=action, exact=True).click()
        self.page.get_by_role("dialog").wait_for(state="detached")

    def assert_accessible(self) -> None:
        """Fail if axe, a checker for accessibility, finds a serious or critical violation."""
        # The debugger evaluates axe: the Content-Security-Policy of the page does not apply to the debugger.
        self.page.evaluate(_AXE.read_text())
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        serious = [
            f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes'][:3]]}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        assert not serious, "\n".join(serious)

    def shoot(self, name: str) -> None:
        """Save a screenshot, for the documentation or for inspection, if SYNCSVC_SCREENSHOTS names a folder."""
        folder = os.environ.get("SYNCSVC_SCREENSHOTS")
        if folder:
            self.page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)

    def close(self) -> None:
        self.context.close()
        assert not self.problems, "\n".join(self.problems)
