"""The syncsvc daemon as a separate process that a test controls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support import observed
from tests.support.service_process import ServiceProcess, connection
from tests.support.waiting import DeadlinePassed, wait_for
from verifier.cluster import bounds, failures
from verifier.cluster.features import RAW_UPDATES


class Daemon(ServiceProcess):
    """The sync service between two clusters, as a separate process."""

    service = "syncsvc"
    program = staticmethod(observed.run)
    log_file = "syncsvc.log"
    port_option = "--port"

    def __init__(
        self,
        source: str | Path,
        destination: str | Path,
        folder: Path,
        *options: str,
        start_options: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """Prepare a daemon without starting its process; `run` starts it.

        `source` and `destination` are connection strings, or files that contain them. The logs are written to `folder`;
        `options` are more command line options. `start_options` is called for each start, and returns default options
        for it.
        """
        self._start_options = start_options
        super().__init__(
            folder,
            *connection("cluster0", source),
            *connection("cluster1", destination),
            *("--logPath", str(folder / "log"), "--verbosity", "DEBUG", *options),
        )

    def start_body(self, **options: Any) -> dict[str, Any]:
        """Return the body of a start request with these options and the defaults of the daemon.

        By default, automatic repair is disabled, because it would hide the differences that a test must find.
        """
        verification = {"repair": "never"}
        body = {"source": "cluster0", "destination": "cluster1", "verification": verification}
        return {**body, **self._start_options(), **options}

    def start(self, **options: Any) -> None:
        answer = self.post("start", self.start_body(**options))
        _refuse_timeout(answer)
        assert (answer.status_code, answer.json()) == (200, {"success": True}), answer.text

    def pause(self) -> None:
        self._command("pause")
        assert self.progress()["state"] == "PAUSED"

    def resume(self) -> None:
        self._command("resume")

    def commit(self) -> None:
        """Commit as soon as possible, and wait until the state is COMMITTED."""
        self.ask_for_commit()
        self.wait_for_state("COMMITTED")

    def ask_for_commit(self) -> None:
        """Send /commit each time that canCommit is found true, until the command is accepted.

        One attempt is not enough: on a busy machine, canCommit can become false before the request arrives.
        """
        self._wait(lambda progress: progress["canCommit"] and self._accepts_commit(), "a commit")

    def _accepts_commit(self) -> bool:
        answer = self.post("commit")
        _refuse_timeout(answer)
        refused: bool = answer.json().get("error") == "CannotCommit"
        assert answer.ok or refused, answer.text
        return not refused

    def commit_until_killed(self) -> None:
        """Send /commit repeatedly until the process is killed at the point that `kill_at` has set.

        One attempt is not enough: canCommit can become false before the request arrives.
        """
        wait_for(self._is_killed_by_a_commit, "a commit")
        self.wait_until_killed()

    def _is_killed_by_a_commit(self) -> bool:
        self.post_unanswered("commit", {})
        return self.exit_status is not None

    def reverse(self) -> None:
        """Reverse the sync, and wait until the sync is RUNNING in the other direction."""
        self._command("reverse")
        self.wait_for_state("RUNNING")

    def _command(self, name: str) -> None:
        answer = self.post(name)
        _refuse_timeout(answer)
        assert (answer.status_code, answer.json()) == (200, {"success": True}), answer.text

    def wait_until_committable(self) -> dict[str, Any]:
        return self._wait(lambda progress: bool(progress["canCommit"]), "canCommit")

    def wait_until_applying(self) -> dict[str, Any]:
        return self._wait(lambda p: p["info"] == "change event application", "applying")

    def commit_or_fail(self) -> dict[str, Any]:
        """Commit as soon as possible; wait until the state is COMMITTED or FAILED, and return the progress."""

        def caught_up(progress: dict[str, Any]) -> bool:
            return progress["state"] == "FAILED" or progress["ceaStage"] == "steady state"

        def asked(progress: dict[str, Any]) -> bool:
            ended = progress["state"] == "FAILED"
            return ended or (progress["canCommit"] and self._accepts_commit())

        # Wait twice, each time with the full timeout: many DDL events take long on a sharded cluster.
        wait_for(lambda: caught_up(self.progress()), "steady state or FAILED")
        wait_for(lambda: asked(self.progress()), "canCommit or FAILED")
        ends = ("COMMITTED", "FAILED")
        return wait_for(lambda: _in_state(self.progress(), ends), " or ".join(ends))

    def wait_for_failure(self, error: str, *texts: str) -> dict[str, Any]:
        """Wait until the sync has failed, and return the progress.

        Fail unless the error has the name `error`, and its description contains each of the texts.
        """
        failed = self.wait_for_state("FAILED")
        assert failed["error"] == error, failed
        assert [each for each in texts if each not in failed["errorDescription"]] == [], failed
        return failed

    def wait_for_state(self, state: str) -> dict[str, Any]:
        return self._wait(lambda progress: progress["state"] == state, state)

    def _wait(self, holds: Any, what: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            progress = self.progress()
            if what != "FAILED":
                assert progress["state"] != "FAILED", progress
            return progress if holds(progress) else None

        return wait_for(look, what)

    def without_features(self, *lines: str) -> None:
        """Make later processes of this daemon treat clusters as if they lacked these features.

        Each line names a feature. If an address follows the name, only the cluster with this address lacks the feature.
        """
        (self.folder / "without-features").write_text("\n".join(lines))

    def classic_updates(self) -> None:
        """Make later processes of this daemon reread updated documents, as if the oplogs contained no diffs."""
        self.without_features(RAW_UPDATES.name)

    def force_classic_updates(self) -> None:
        """Restart the process so that it rereads updated documents, as for a source whose oplog contains no diffs."""
        self.classic_updates()
        self.kill()
        self.run()

    def believe_the_source_is_old(self) -> None:
        """Make later processes of this daemon assume that no cluster reports DDL events, as before MongoDB 6.0."""
        (self.folder / "old-source").touch()

    def believe_the_destination_is_new(self) -> None:
        """Make later processes of this daemon treat the destination as MongoDB 6.3 or newer.

        These processes do not send the option recordPreImages, which servers from 6.2 on refuse (SERVER-60919). They
        also create the index that servers from 6.3 on add to new time-series collections.
        """
        (self.folder / "new-destination").touch()

    def save_every_page(self) -> None:
        """Make later processes of this daemon save the resume point of the copy after every page."""
        (self.folder / "save-every-page").touch()

    def small_partitions(self, size: int = 2000) -> None:
        """Make later processes of this daemon copy collections larger than `size` bytes in ranges of that size."""
        (self.folder / "small-partitions").write_text(str(size))

    def copy_in_small_steps(self, size: int) -> None:
        """Make later processes of this daemon copy in ranges of `size` bytes, and save the resume point of every page.

        These processes also warn of each wait after two seconds.
        """
        self.save_every_page()
        self.small_partitions(size)
        self.warn_soon()

    def watch_closely(self) -> None:
        """Make later processes of this daemon check the source's oplog, shard keys and balancers ten times a second.

        For a source older than 6.0, these processes also check the definitions ten times a second.
        """
        (self.folder / "watch-closely").touch()

    def forge_events(self) -> None:
        """Make later processes of this daemon receive the events that `tests.support.forged` reports.

        After their start, these processes do not check for resharded collections themselves.
        """
        (self.folder / "forge-events").touch()

    def hide_drops(self) -> None:
        """Make later processes of this daemon ignore the drop events of the source."""
        (self.folder / "hide-drops").touch()

    def spool_often(self) -> None:
        """Make later processes of this daemon save small rows in the event spool, several times a second."""
        (self.folder / "spool-often").touch()

    def expect_heartbeats(self) -> None:
        """Make later processes of this daemon warn after three seconds without a heartbeat of another instance."""
        (self.folder / "expect-heartbeats").touch()

    def set_lease(self, seconds: float) -> None:
        """Make later processes of this daemon take leases that are valid for `seconds`."""
        (self.folder / "lease").write_text(str(seconds))

    def report_often(self) -> None:
        """Make later processes of this daemon log their progress several times a second."""
        (self.folder / "report-often").touch()

    def warn_soon(self) -> None:
        """Make later processes of this daemon warn of each wait, such as an unanswered call, after two seconds."""
        (self.folder / "warn-soon").touch()

    def give_up_soon(self) -> None:
        """Make later processes of this daemon retry unexpected errors for only 5 s, and wait for servers for 10 s.

        Their resets wait 5 s for a source that does not answer.
        """
        (self.folder / "give-up-soon").touch()

    def judge_soon(self) -> None:
        """Make later processes of this daemon end a verification at once, without rechecking remaining differences."""
        (self.folder / "judge-soon").touch()

    def limits(self, **changes: Any) -> dict[str, Any]:
        """Change the limits in `changes` if there are any, and return the limits as the API shows them."""
        answer = self.patch("limits", changes) if changes else self.get("limits")
        assert answer.ok, answer.text
        self._assert_described(answer)
        body: dict[str, Any] = answer.json()
        return body

    def namespaces(self, **parameters: str | int) -> dict[str, Any]:
        """Return the answer to GET /namespaces with these query parameters.

        Fail unless the OpenAPI description allows the answer.
        """
        answer = self.get("namespaces", **parameters)
        self._assert_described(answer)
        body: dict[str, Any] = answer.json()
        return body

    def users(self) -> list[dict[str, Any]]:
        """Return the list of users and roles, each with the result that a commit would have for it now."""
        answer = self.get("users")
        assert answer.ok, answer.text
        self._assert_described(answer)
        found: list[dict[str, Any]] = answer.json()["usersAndRoles"]
        return found

    def copy_users(self) -> dict[str, Any]:
        """Copy users and roles before the commit; return the numbers of copied and skipped ones, as in the answer."""
        answer = self.post("users")
        assert answer.ok, answer.text
        self._assert_described(answer)
        copied: dict[str, Any] = answer.json()["usersAndRoles"]
        assert copied == self.progress()["usersAndRoles"]
        return copied

    def overview(self, **parameters: str) -> dict[str, Any]:
        """Return the overview of the sync, which the web page shows; `parameters` are query parameters."""
        answer = self.get("overview", **parameters)
        self._assert_described(answer)
        overview: dict[str, Any] = answer.json()["overview"]
        return overview

    def report(self) -> dict[str, Any]:
        """Return the report of the sync as JSON. Fail unless the OpenAPI description allows the answer."""
        answer = self.get("report")
        assert answer.ok, answer.text
        self._assert_described(answer)
        report: dict[str, Any] = answer.json()["report"]
        return report

    @contextmanager
    def no_room(self) -> Iterator[None]:
        """Make the daemon see 100 MB of free memory, and no free disk space on the destination, during the block."""
        (self.folder / "no-room").touch()
        try:
            yield
        finally:
            (self.folder / "no-room").unlink()


def prepared(*calls: Callable[[Daemon], None]) -> pytest.MarkDecorator:
    """Return a mark for a test: before the test, these methods are called on each daemon of its fixtures.

    The fixtures are `daemon` and `fleet`.
    """
    return pytest.mark.prepared.with_args(*calls)


def _refuse_timeout(answer: requests.Response) -> None:
    """Raise DeadlinePassed if a server did not answer a command of the daemon in time: a busy disk can be the cause."""
    if answer.json().get("error") == failures.CLUSTER_UNREACHABLE.name:
        raise DeadlinePassed("an answer from a server", bounds.PATIENCE, answer.text)


def _in_state(progress: dict[str, Any], states: tuple[str, ...]) -> dict[str, Any] | None:
    return progress if progress["state"] in states else None
