"""The commands of the runbook, run as they are printed, in their order; only addresses are other ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from syncsvc.sandbox.replica_set import Client
from tests.support.daemon import Daemon
from tests.support.pair import Pair
from tests.support.runbook import Block, paste, section
from tests.support.verifier import Verifier

DATABASE = "shop"


class Operator:
    """Pastes, and does what systemd does with the two services."""

    def __init__(self, pair: Pair, daemon: Daemon, verifier: Verifier) -> None:
        self._pair = pair
        self._daemon = daemon
        self._verifier = verifier
        self._systemctl = {
            "systemctl start syncsvc-verifier": verifier.run,
            "systemctl start syncsvc": daemon.run,
            "systemctl restart syncsvc": self._restart,
            "systemctl stop syncsvc": daemon.close,
            "systemctl disable --now syncsvc syncsvc-verifier": self._stop,
        }

    def follow(self, *titles: str) -> str:
        """Paste everything under these titles; all that the shell shows."""
        return "".join(self._paste(block) for title in titles for block in section(title))

    def _paste(self, block: Block) -> str:
        if block.language == "javascript":
            self._evaluate(block.text)
            return ""
        return "".join(self._command(line) for line in block.text.splitlines())

    def _command(self, line: str) -> str:
        if not line.startswith("systemctl"):
            return self._shell(line)
        self._systemctl[line]()
        return ""

    def _shell(self, text: str) -> str:
        return paste(
            text,
            {
                "localhost:27182": f"127.0.0.1:{self._daemon.port}",
                "localhost:27020": f"127.0.0.1:{self._verifier.port}",
            },
        )

    def _evaluate(self, text: str) -> None:
        """The few forms of mongosh that the runbook has. A comment says on which cluster."""
        comment, *statements = text.splitlines()
        client = (self._pair.source if "source" in comment else self._pair.destination).client
        for statement in statements:
            if found := re.fullmatch(r"db\.adminCommand\((\{.*\})\)", statement):
                client.admin.command(yaml.safe_load(found[1]))
            elif found := re.fullmatch(r'db\.getSiblingDB\("(\w+)"\)\.dropDatabase\(\)', statement):
                client.drop_database(found[1])
            else:
                raise AssertionError(f"this test cannot evaluate {statement}")

    def _restart(self) -> None:
        self._daemon.close()
        self._daemon.run()

    def _stop(self) -> None:
        self._daemon.close()
        self._verifier.close()


@pytest.fixture
def operator(pair: Pair, daemon: Daemon, tmp_path: Path) -> Iterator[Operator]:
    folder = tmp_path / "verifier"
    folder.mkdir()
    verifier = Verifier(pair.source.uri, pair.destination.uri, folder)
    yield Operator(pair, daemon, verifier)
    verifier.close()


def fill(client: Client) -> None:
    client[DATABASE].orders.insert_many({"_id": number, "n": number} for number in range(1000))
    client[DATABASE].orders.create_index("n", unique=True)


def names(client: Client) -> set[str]:
    return {*client.list_database_names()} - {"admin", "config", "local"}


def test_a_migration(pair: Pair, operator: Operator, daemon: Daemon) -> None:
    fill(pair.source.client)
    shown = operator.follow("Migrate")
    assert '"violations":[]' in shown
    assert '"COMMITTED"' in shown
    assert daemon.progress()["canWrite"] is True
    pair.assert_equal()
    shown = operator.follow("Check with the verifier")
    assert '"verdict":"passed"' in shown
    operator.follow("Clean up")
    assert names(pair.destination.client) == {DATABASE}


def test_a_migration_that_is_given_up(pair: Pair, operator: Operator, daemon: Daemon) -> None:
    fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    daemon.kill()
    operator.follow("It was killed half-way")
    daemon.wait_until_committable()
    operator.follow("Go back")
    assert names(pair.destination.client) == set()
    for side in (pair.source, pair.destination):
        side.client[DATABASE].orders.insert_one({"_id": "again"})
    pair.destination.client.drop_database(DATABASE)
    # And anew, as the runbook says.
    daemon.run()
    daemon.start()
    daemon.commit()
    pair.assert_equal()


def test_a_migration_that_is_reversed(pair: Pair, operator: Operator, daemon: Daemon) -> None:
    fill(pair.source.client)
    assert '"violations":[]' in operator.follow("With a way back")
    daemon.commit()
    pair.destination.client[DATABASE].orders.insert_one({"_id": "of the destination"})
    operator.follow("Go back after the commit")
    assert pair.source.client[DATABASE].orders.find_one({"_id": "of the destination"})
    pair.assert_equal()
