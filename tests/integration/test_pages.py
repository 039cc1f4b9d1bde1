"""Runs the commands of the documentation in their order, exactly as printed except for addresses and programs.

`syncctl commit` gets an option that confirms the command.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from syncsvc.sandbox.replica_set import Client
from tests.support import principals
from tests.support.daemon import Daemon
from tests.support.filtered import assert_selected
from tests.support.foreign import assert_synced
from tests.support.pages import ROOT, Block, commands, evaluate, paste
from tests.support.pair import TO_SHARDED, Pair, across
from tests.support.renamed import assert_renamed
from tests.support.verifier import Verifier

DATABASE = "shop"
# The connection strings that pages use.
SOURCES = (
    "mongodb://user:password@source.example/?replicaSet=a",
    "mongodb://127.0.0.1:20001/?replicaSet=source",
)
DESTINATIONS = (
    "mongodb://user:password@destination.example/?replicaSet=b",
    "mongodb://127.0.0.1:20002/?replicaSet=destination",
)


class Operator:
    """Follows pages of the documentation as an operator: runs their commands, and starts and stops the services.

    The daemon does not run until the test or a page starts it.
    """

    def __init__(self, pair: Pair, folder: Path) -> None:
        self._pair = pair
        self._folder = folder
        self.daemon = pair.daemon(folder)
        (folder / "verifier").mkdir()
        uris = pair.source.uri, pair.destination.uri
        self._verifier = Verifier(*uris, folder / "verifier")

    def close(self) -> None:
        self.daemon.close()
        self._verifier.close()

    def follow(self, page: str, *titles: str) -> str:
        """Run the commands under these titles of a page (default: all commands), and return their output."""
        return "".join(map(self._run, commands(page, *titles)))

    def _run(self, block: Block) -> str:
        if block.language == "javascript":
            self._evaluate(block.text)
            return ""
        lines = block.text.replace("\\\n", " ").splitlines()
        shown = ""
        for is_service, found in groupby(lines, _starts_or_stops):
            if is_service:
                for line in found:
                    self._start_or_stop(line)
            else:
                shown += paste("\n".join(found), self._replaced)
        return shown

    @property
    def _replaced(self) -> dict[str, str]:
        """Return a map from the addresses and programs in the documentation to those of the test."""
        source, destination = self._pair.source.uri, self._pair.destination.uri
        return {
            **dict.fromkeys(SOURCES, source),
            **dict.fromkeys(DESTINATIONS, destination),
            "source.example:27017": urlsplit(source).netloc,
            "destination.example:27017": urlsplit(destination).netloc,
            "localhost:27182": f"127.0.0.1:{self.daemon.port}",
            "localhost:27020": f"127.0.0.1:{self._verifier.port}",
            ".venv/bin/syncsvc-verifier": f"{sys.executable} -m verifier",
            "syncsvc-verifier --": f"{sys.executable} -m verifier --",
            ".venv/bin/python": sys.executable,
            **self._syncctl,
        }

    @property
    def _syncctl(self) -> dict[str, str]:
        """Return a map from calls of syncctl in the documentation to calls for the test.

        The calls for the test use the test's services, and need no confirmation.
        """
        addresses = {
            "--url": f"http://127.0.0.1:{self.daemon.port}",
            "--verifier-url": f"http://127.0.0.1:{self._verifier.port}",
        }
        options = " ".join(f"{name} {url}" for name, url in addresses.items())
        program = f"{sys.executable} -m syncsvc.ctl {options}"
        calls = {
            "syncctl ": f"{program} ",
            "syncctl commit --wait": f"{program} commit --wait --yes",
        }
        # The longest calls come first, because only the first one that matches is replaced.
        return {
            f"{folder}{call}": command
            for call, command in sorted(calls.items(), reverse=True)
            for folder in (".venv/bin/", "")
        }

    def _start_or_stop(self, line: str) -> None:
        program, *arguments = shlex.split(line)
        if program != "systemctl":
            options = (self._replaced.get(each, each) for each in arguments)
            self.daemon = self._pair.daemon(self._folder, *options)
            self.daemon.run()
            return
        command, *units = (each for each in arguments if not each.startswith("--"))
        for unit in units:
            process = {"syncsvc": self.daemon, "syncsvc-verifier": self._verifier}[unit]
            if command != "start":
                process.close()
            if command in ("start", "restart"):
                process.run()

    def _evaluate(self, text: str) -> None:
        """Run a block of mongosh statements with the driver; the comment in its first line names the cluster."""
        comment = text.partition("\n")[0]
        evaluate(
            text, (self._pair.source if "source" in comment else self._pair.destination).client
        )


def _starts_or_stops(line: str) -> bool:
    return re.match(r"systemctl |(\.venv/bin/)?syncsvc ", line) is not None


@pytest.fixture
def operator(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operator]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # Some commands write files.
    monkeypatch.chdir(tmp_path)
    operator = Operator(pair, tmp_path)
    yield operator
    operator.close()


@pytest.fixture
def daemon(operator: Operator) -> Daemon:
    """Start the operator's daemon, and return it."""
    operator.daemon.run()
    return operator.daemon


def fill(client: Client) -> None:
    client[DATABASE].orders.insert_many({"_id": number, "n": number} for number in range(1000))
    client[DATABASE].orders.create_index("n", unique=True)


def names(client: Client) -> set[str]:
    return {*client.list_database_names()} - {"admin", "config", "local"}


def test_the_commands_of_the_readme(pair: Pair, operator: Operator) -> None:
    fill(pair.source.client)
    shown = operator.follow("README.rst")
    assert "commit: possible" in shown and '"COMMITTED"' in shown
    pair.assert_equal()


def test_the_commands_of_the_tutorial(pair: Pair, operator: Operator) -> None:
    shown = operator.follow("docs/tutorial.rst")
    assert "A start would succeed." in shown and "commit: possible" in shown
    assert '"COMMITTED"' in shown
    assert "PASSED" in shown
    pair.assert_equal()
    assert pair.destination.client[DATABASE].orders.count_documents({}) == 1001


def test_the_commands_of_a_migration(
    pair: Pair, operator: Operator, daemon: Daemon, tmp_path: Path
) -> None:
    fill(pair.source.client)
    shown = operator.follow("docs/howto/prepare.rst")
    assert '"IDLE"' in shown and '"violations": []' in shown
    assert '"violations": []' in operator.follow("docs/howto/connect.rst")
    assert '"throttledBy": null' in operator.follow("docs/howto/throttle.rst")
    assert '"COMMITTED"' in operator.follow("docs/howto/migrate.rst")
    assert daemon.progress()["canWrite"] is True
    pair.assert_equal()
    shown = operator.follow("docs/howto/verify.rst")
    assert '"verdict": "passed"' in shown and "PASSED" in shown
    assert "The check has passed" in (tmp_path / "verification.html").read_text()
    operator.follow("docs/howto/clean-up.rst", "After the commit")
    assert names(pair.destination.client) == {DATABASE}


def test_the_commands_that_copy_users(pair: Pair, operator: Operator, daemon: Daemon) -> None:
    fill(pair.source.client)
    with principals.cleared(pair):
        principals.fill(pair.source.client)
        shown = operator.follow("docs/howto/users.rst")
        assert '"users": 5' in shown and "alice" in shown and "5 users and 3 roles copied" in shown
        assert principals.documents(pair.destination) == principals.documents(pair.source)
    pair.assert_equal()


def test_the_commands_that_rename_a_database(
    pair: Pair, operator: Operator, daemon: Daemon
) -> None:
    fill(pair.source.client)
    shown = operator.follow("docs/howto/rename.rst")
    assert '"destinationNamespace": "store.orders"' in shown and '"verdict": "passed"' in shown
    assert names(pair.destination.client) >= {"store"}
    assert_renamed(pair, {DATABASE: "store"})


def test_the_commands_that_filter_documents(
    pair: Pair, operator: Operator, daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    new, old = datetime(2024, 1, 1), datetime(2023, 12, 31)
    pair.source.client.shop.orders.insert_many(
        {"region": region, "date": date} for region in ("eu", "us") for date in (new, old)
    )
    assert '"documents": 1' in operator.follow("docs/howto/filter-documents.rst")
    query = {"region": "eu", "date": {"$gte": new}}
    assert_selected(pair, {"shop.orders": query})


def test_the_commands_of_a_sync_to_existing_data(
    pair: Pair, operator: Operator, daemon: Daemon
) -> None:
    fill(pair.source.client)
    pair.destination.client.theirs.c.insert_one({"_id": 1})
    shown = operator.follow("docs/howto/existing-data.rst")
    assert '"violations": []' in shown and '"COMMITTED"' in shown
    assert_synced(pair.source.client, pair.destination.client, {"theirs.c"})


def test_the_commands_of_syncctl(
    pair: Pair, operator: Operator, daemon: Daemon, tmp_path: Path
) -> None:
    fill(pair.source.client)
    shown = operator.follow("docs/howto/syncctl.rst")
    assert "permit a start" in shown and "commit: possible" in shown
    assert daemon.progress()["state"] == "COMMITTED"
    pair.assert_equal()
    assert (tmp_path / "syncsvc-diagnose.tar.gz").exists()
    report = tmp_path / "report.html"
    assert "At the commit, everything that was compared was equal" in report.read_text()
    report.unlink()
    assert '"headline"' in operator.follow("docs/howto/report.rst")
    assert report.exists()


def test_the_commands_of_a_reset_migration(pair: Pair, operator: Operator, daemon: Daemon) -> None:
    fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    daemon.kill()
    operator.follow("docs/howto/troubleshoot.rst", "The process was killed")
    daemon.wait_until_committable()
    shown = operator.follow("docs/howto/clean-up.rst", "Give up a sync")
    assert f'"{DATABASE}.orders"' in shown and '"success": true' in shown
    assert names(pair.destination.client) == set()
    for side in (pair.source, pair.destination):
        side.client[DATABASE].orders.insert_one({"_id": "again"})
    pair.destination.client.drop_database(DATABASE)
    # A new sync can begin then.
    daemon.start()
    daemon.commit()
    pair.assert_equal()


def test_the_commands_of_a_reversed_migration(
    pair: Pair, operator: Operator, daemon: Daemon
) -> None:
    fill(pair.source.client)
    shown = operator.follow("docs/howto/reverse.rst", "Start a reversible sync")
    assert '"violations":[]' in shown
    daemon.commit()
    pair.destination.client[DATABASE].orders.insert_one({"_id": "of the destination"})
    operator.follow("docs/howto/reverse.rst", "Reverse", "Return to the old cluster")
    assert pair.source.client[DATABASE].orders.find_one({"_id": "of the destination"})
    pair.assert_equal()
    pair.destination.client.admin.command({"setUserWriteBlockMode": 1, "global": False})


def test_the_commands_after_a_failed_verification(
    pair: Pair, operator: Operator, daemon: Daemon
) -> None:
    fill(pair.source.client)
    daemon.start(enableUserWriteBlocking="none")
    daemon.wait_until_committable()
    pair.destination.client[DATABASE].orders.update_one({"_id": 7}, {"$set": {"n": -1}})
    daemon.commit_or_fail()
    assert '"success":true' in operator.follow("docs/howto/troubleshoot.rst", "The sync failed")
    assert daemon.commit_or_fail()["error"] == "VerificationFailed"
    shown = operator.follow("docs/howto/troubleshoot.rst", "Troubleshoot", "Verification failed")
    assert '"VerificationFailed"' in shown
    assert '"content"' in shown and f"{DATABASE}.orders" in shown
    assert '"action":"write' in shown
    daemon.commit()
    pair.assert_equal()


def test_the_commands_to_lift_a_write_block_by_hand(pair: Pair, operator: Operator) -> None:
    pair.source.client.admin.command({"setUserWriteBlockMode": 2, "global": True})
    operator.follow("docs/howto/clean-up.rst", "Lift a write block by hand")
    pair.source.client[DATABASE].orders.insert_one({"_id": 1})


@across(TO_SHARDED)
def test_the_commands_of_a_migration_to_a_sharded_cluster(
    pair: Pair, operator: Operator, daemon: Daemon
) -> None:
    pair.shard(f"{DATABASE}.orders", {"customer": 1, "_id": 1})
    pair.shard(f"{DATABASE}.visits")
    for name in ("orders", "visits"):
        documents = ({"_id": number, "customer": number % 10} for number in range(1000))
        pair.source.client[DATABASE][name].insert_many(documents)
    operator.follow("docs/howto/sharding.rst")
    daemon.commit()
    pair.assert_equal()
