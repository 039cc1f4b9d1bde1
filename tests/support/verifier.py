"""Runs the verifier as a separate process that a test controls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support import observed_verifier
from tests.support.service_process import ServiceProcess, connection
from tests.support.waiting import wait_for


class Verifier(ServiceProcess):
    """The verifier of two clusters, as a separate process. Without options, it compares everything."""

    service = "verifier"
    program = staticmethod(observed_verifier.run)
    log_file = "verifier.log"
    port_option = "--serverPort"

    def __init__(
        self, source: str | Path, destination: str | Path, folder: Path, *options: str
    ) -> None:
        super().__init__(
            folder,
            *connection("srcURI", source),
            *connection("destURI", destination),
            *("--logPath", str(folder / "log"), "--verbosity", "DEBUG"),
            *(options or ("--verifyAll",)),
        )

    def check(self, **body: Any) -> None:
        answer = self.post("check", body)
        assert (answer.status_code, answer.json()) == (200, {"success": True}), answer.text
        assert self.progress()["phase"] != "idle" or self.progress()["verdict"]

    def writes_off(self) -> None:
        answer = self.post("writesOff")
        assert (answer.status_code, answer.json()) == (200, {"success": True}), answer.text

    def wait_for_generation(self, number: int) -> dict[str, Any]:
        """Wait until the generation with that number, or a later one, has begun; return the progress."""
        return self._wait(
            lambda progress: (progress["generation"] or 0) >= number, f"generation {number}"
        )

    def wait_for_verdict(self) -> dict[str, Any]:
        return self._wait(lambda progress: progress["verdict"] is not None, "a verdict")

    def verify(self, **body: Any) -> dict[str, Any]:
        """Run a complete check of clusters that receive no writes; return the progress at its end."""
        self.check(**body)
        self.writes_off()
        return self.wait_for_verdict()

    def assert_passed(self, progress: dict[str, Any]) -> None:
        """Fail with the reasons and all mismatches unless the verdict in `progress` is passed."""
        if progress["verdict"] != "passed":
            found = [*self.lines("docMismatches"), *self.lines("nsMismatches")]
            raise AssertionError("\n".join(map(str, [progress["verdictReasons"], *found])))

    def lines(self, what: str, **parameters: Any) -> list[dict[str, Any]]:
        """Request the endpoint `what`, docMismatches or nsMismatches, and return the parsed lines of the answer."""
        answer = self.get(what, **parameters)
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Type"].startswith("application/x-ndjson")
        return [json.loads(line) for line in answer.text.splitlines()]

    def differing_definitions(self) -> list[tuple[str, str, str, str]]:
        """Return the fields type, namespace, aspect and component of each line of nsMismatches, sorted."""
        return sorted(
            (line["type"], line["namespace"], line["aspect"], line["component"])
            for line in self.lines("nsMismatches")
        )

    def _wait(self, holds: Any, what: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            progress = self.progress()
            return progress if holds(progress) else None

        return wait_for(look, what)
