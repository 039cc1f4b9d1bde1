"""Runs the service between clusters with access control and TLS.

The documented roles must suffice, each role must be necessary, and no password may appear in the output. Errors of
logins and of TLS must name their cause. The tests change the roles of the service's users between starts, because each
start reads the roles again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pymongo.errors import OperationFailure

from syncsvc.metadata import METADATA_DATABASE
from syncsvc.preflight.privileges import privilege_violations
from syncsvc.preflight.questions import free_disk
from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.replica_set import Client
from syncsvc.schemas import StartSchema
from tests.support import custom_roles
from tests.support.behaviours import ALL
from tests.support.blocks import USER_WRITES_BLOCKED
from tests.support.certificates import make_certificates
from tests.support.daemon import Daemon
from tests.support.mongosync_readers import copied_phases, global_state, resume_data
from tests.support.pages import commands, evaluate
from tests.support.pair import Pair, Side
from tests.support.roles import USES, Use
from tests.support.selection import full
from tests.support.service_process import ROOT
from tests.support.waiting import PATIENCE, wait_for
from verifier.cluster.facts import ClusterFacts, Topology, gather
from verifier.cluster.failures import UNAUTHORIZED
from verifier.runtime.schemas import load

NAMES = {"source": "cluster0", "destination": "cluster1"}
IDS = ["none", "destinationOnly", "sourceAndDestination", "reversible"]

# A sample of the behaviours, so that the service uses many privileges of the roles.
SOME_BEHAVIOURS = ALL[::20]


@dataclass(frozen=True)
class Guarded:
    """A cluster that requires authentication and TLS.

    `uri` is the connection string of the service's user, whose roles the tests change. `application` is the client of
    another user, who only writes documents.
    """

    side: Side
    uri: str
    application: Client

    def grant(self, roles: Sequence[str]) -> None:
        """Replace the roles of the service's user by these roles."""
        self.side.client.admin.command("updateUser", "syncer", roles=list(roles))

    def takes_writes(self) -> bool:
        try:
            self.application.d.written.insert_one({})
        except OperationFailure as error:
            assert error.code == USER_WRITES_BLOCKED
            return False
        return True


@dataclass(frozen=True)
class Clusters:
    source: Guarded
    destination: Guarded

    @property
    def pair(self) -> Pair:
        return Pair(self.source.side, self.destination.side)

    def grant(self, use: Use, side: str = "", without: str = "") -> None:
        """Grant the service's users the roles that a sync with the start options of `use` requires.

        The role `without` is left out on the cluster `side`, "source" or "destination". By default, no role is left
        out.
        """
        for name, roles in use.sides.items():
            kept = [role for role in roles if (name, role) != (side, without)]
            {"source": self.source, "destination": self.destination}[name].grant(kept)


@contextmanager
def guarded(name: str, folder: Path) -> Iterator[Guarded]:
    folder.mkdir()
    certificates = make_certificates(folder)
    # A large transaction must fit into the cache together with everything written just before.
    with ReplicaSet(
        name=name, access_control=True, certificates=certificates, cache_size_gb=1
    ) as cluster:
        uri = cluster.create_user("syncer", [])
        writer = cluster.create_user("application", ["readWriteAnyDatabase"])
        with cluster.client() as client, Client(writer) as application:
            yield Guarded(Side(cluster.uri, client), uri, application)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    folder = tmp_path_factory.mktemp("tls")
    with (
        guarded("source", folder / "source") as source,
        guarded("destination", folder / "destination") as destination,
    ):
        yield Clusters(source, destination)


@pytest.fixture
def clusters(both: Clusters) -> Clusters:
    """Drop all data of the two clusters, insert documents into the source, and return the clusters."""
    both.pair.empty()
    both.source.side.client.d.c.insert_many([{"_id": number} for number in range(100)])
    return both


@contextmanager
def running(clusters: Clusters, folder: Path, *options: str) -> Iterator[Daemon]:
    """Run a daemon, and check at the end of the block that its output contains no password."""
    daemon = Daemon(clusters.source.uri, clusters.destination.uri, folder, *options)
    with daemon.running():
        yield daemon
        assert_no_password(clusters, daemon)


def assert_no_password(clusters: Clusters, daemon: Daemon) -> None:
    answers = [daemon.get(path).text for path in ("progress", "/metrics")]
    told = "".join([*answers, daemon.log, (daemon.folder / "output").read_text()])
    for each in (clusters.source, clusters.destination):
        assert str(urlsplit(each.uri).password) not in told


def missing(daemon: Daemon, use: Use) -> list[str]:
    """Return the descriptions of the violations that a preflight with the start options of `use` reports.

    Fail unless all violations are NotAuthorized.
    """
    answer = daemon.post("preflight", {**NAMES, **use.options}).json()
    assert {each["error"] for each in answer["violations"]} <= {"NotAuthorized"}, answer
    return [each["errorDescription"] for each in answer["violations"]]


@pytest.mark.full
def test_each_missing_documented_role_is_reported_by_name(
    clusters: Clusters, tmp_path: Path
) -> None:
    clusters.grant(USES[-1])
    with running(clusters, tmp_path) as daemon:
        for use in USES:
            clusters.grant(use)
            assert missing(daemon, use) == []
            for side, roles in use.sides.items():
                for role in roles:
                    clusters.grant(use, side, role)
                    found = missing(daemon, use)
                    assert any(role in each for each in found), (use.name, side, role, found)
                    assert all(f"on the {side};" in each for each in found), found
        answer = daemon.post("start", {**NAMES, **use.options})
        assert (answer.status_code, answer.json()["error"]) == (409, "NotAuthorized")
        assert role in answer.json()["errorDescription"]


@pytest.mark.parametrize("use", USES, ids=IDS)
def test_the_roles_for_sharded_clusters_have_the_required_privileges(
    clusters: Clusters, use: Use
) -> None:
    """Check that the roles documented for sharded clusters suffice for them, and those for replica sets do not.

    The roles are granted on replica sets, which have the same built-in roles: the tests' router has no access control.
    """
    asked = load(StartSchema(), {**NAMES, **use.options})
    for wide, enough in ((use.on_sharded, True), (use, False)):
        clusters.grant(wide)
        source, destination = as_sharded(clusters.source), as_sharded(clusters.destination)
        violations = list(privilege_violations(asked, source, destination, time_series=True))
        assert (violations == []) is enough


def as_sharded(cluster: Guarded) -> ClusterFacts:
    """Return the facts about the cluster and its user's privileges, changed as if the cluster were sharded."""
    with Client(cluster.uri) as client:
        return replace(gather(client), topology=Topology.SHARDED)


@pytest.mark.parametrize("use", [*map(full, USES[:-1]), USES[-1]], ids=IDS)
def test_the_documented_roles_are_sufficient(clusters: Clusters, tmp_path: Path, use: Use) -> None:
    clusters.grant(use)
    sync(clusters, tmp_path, use)


def sync(clusters: Clusters, tmp_path: Path, use: Use) -> None:
    """Start, reset, start again and commit a sync with the start options of `use`; if it is reversible, reverse it."""
    source, destination = clusters.source, clusters.destination
    blocking = use.options.get("enableUserWriteBlocking", "destinationOnly")
    for each in SOME_BEHAVIOURS:
        each.fill(source.side.client[each.name])
    source.side.client.d.create_collection("view", viewOn="c", pipeline=[])
    # The roles also suffice to renew the lease of `--standby` while users are blocked.
    with running(clusters, tmp_path, "--standby") as daemon:
        taken = daemon.progress()["lease"]
        daemon.start(**use.options)
        daemon.wait_until_committable()
        if blocking != "none":
            assert not destination.takes_writes()
        wait_for(lambda: daemon.progress()["lease"]["expires"] > taken["expires"], "a renewal")
        assert daemon.progress()["lease"]["since"] == taken["since"]
        assert daemon.post("reset", {"confirm": "cluster1"}).ok
        daemon.wait_for_state("IDLE")
        daemon.start(**use.options)
        daemon.wait_until_committable()
        assert source.takes_writes()
        if blocking != "none":
            assert not destination.takes_writes()
        for each in SOME_BEHAVIOURS:
            each.change(source.side.client[each.name])
        daemon.commit()
        clusters.pair.assert_equal()
        assert destination.takes_writes()
        assert source.takes_writes() is (blocking != "sourceAndDestination")
        if use.options.get("reversible"):
            daemon.reverse()
            assert (source.takes_writes(), destination.takes_writes()) == (False, True)
            daemon.commit()
            clusters.pair.assert_equal()
            assert (source.takes_writes(), destination.takes_writes()) == (True, False)


def test_the_documented_custom_roles_are_sufficient(clusters: Clusters, tmp_path: Path) -> None:
    (default,) = (use for use in USES if not use.options)
    guarded_clusters = {"source": clusters.source, "destination": clusters.destination}
    with ExitStack() as stack:
        for side, cluster in guarded_clusters.items():
            needed = custom_roles.of_sync(side)
            for name, optional in (("exact", ""), ("wide", side)):
                evaluate(custom_roles.creation(name, needed, optional), cluster.side.client)
                stack.callback(cluster.side.client.admin.command, "dropRole", name)
            cluster.grant(["wide"])
            stack.callback(cluster.grant, [])
        clusters.source.side.client.d.create_collection("t", timeseries={"timeField": "at"})
        with running(clusters, tmp_path) as daemon:
            answer = daemon.post("preflight", {**NAMES, **default.options}).json()
            assert (answer["violations"], answer["warnings"]) == ([], [])
        with Client(clusters.destination.uri) as client:
            assert free_disk(client)
        for cluster in guarded_clusters.values():
            cluster.grant(["exact"])
        sync(clusters, tmp_path, default)


@contextmanager
def guest(cluster: Guarded, role: str) -> Iterator[Side]:
    """Create a user with this role, and yield the cluster as this user sees it; then drop the user and the role."""
    admin = cluster.side.client.admin
    admin.command("createUser", "guest", pwd="guest", roles=[role])
    try:
        with Client(cluster.side.uri, username="guest", password="guest") as client:
            yield Side(cluster.side.uri, client)
    finally:
        admin.command("dropUser", "guest")
        admin.command("dropRole", role)


def test_the_documented_role_of_dashboards_does_not_show_documents(
    clusters: Clusters, tmp_path: Path
) -> None:
    clusters.grant(USES[0])
    blocks = commands("docs/howto/alert.rst", "Dashboards for mongosync")
    evaluate("\n".join(each.text for each in blocks), clusters.destination.side.client)
    with (
        running(clusters, tmp_path) as daemon,
        guest(clusters.destination, "syncDashboards") as dashboards,
    ):
        daemon.start(**USES[0].options)
        daemon.wait_until_committable()
        assert resume_data(dashboards)["state"] == "RUNNING"
        assert global_state(dashboards)["reversible"] is False
        assert copied_phases(dashboards) == {"d.c": {"done": 1}}
        for database, name in ((METADATA_DATABASE, "eventSpool"), ("d", "c")):
            with pytest.raises(OperationFailure) as refused:
                dashboards.client[database][name].find_one()
            assert refused.value.code == UNAUTHORIZED


def test_a_sync_started_after_a_refused_start_survives_a_restart(
    clusters: Clusters, tmp_path: Path
) -> None:
    """Grant the role that allows reading the ID of the source only after a start was refused because of it.

    A restarted process must recognize the clusters of the sync. Without the role, it must name the role, and not say
    that the clusters are wrong.
    """
    use = USES[0]
    clusters.grant(use, "source", "clusterMonitor")
    with running(clusters, tmp_path) as daemon:
        refused = daemon.post("start", {**NAMES, **use.options})
        assert (refused.status_code, refused.json()["error"]) == (409, "NotAuthorized")
        clusters.grant(use)
        daemon.start(**use.options)
        daemon.wait_until_committable()
        daemon.kill()
        daemon.run()
        daemon.kill()
        clusters.grant(use, "source", "clusterMonitor")
        daemon.launch()
        assert daemon.wait_until_ended() == 1
        assert "NotAuthorized: The user of cluster0 cannot read the ID" in daemon.output
        clusters.grant(use)
        daemon.run()
        daemon.commit()
    clusters.pair.assert_equal()


def beginning(folder: Path, cluster0: str, cluster1: str) -> subprocess.Popen[str]:
    """Start a daemon that will fail because of its connection strings, and return the process."""
    uris = (f"--cluster0={cluster0}&serverSelectionTimeoutMS=5000", f"--cluster1={cluster1}")
    command = [sys.executable, "-m", "syncsvc", *uris, "--port", "0", "--logPath", str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def test_failed_logins_and_tls_errors_name_cause_and_remedy(
    clusters: Clusters, tmp_path: Path
) -> None:
    source = clusters.source.uri
    plain = source.partition("&tls=")[0]
    other = tmp_path / "other"
    other.mkdir()
    wrong = make_certificates(other).authority
    password = str(urlsplit(source).password)
    told = {
        source.replace(password, f"{password}0"): (
            "NotAuthorized",
            "Authentication failed",
            "password",
        ),
        plain: ("ClusterUnreachable", "connection closed", "if the servers require TLS"),
        f"{plain}&tls=true": ("ClusterUnreachable", "certificate verify failed", "tlsCAFile"),
        f"{plain}&tls=true&tlsCAFile={wrong}": (
            *("ClusterUnreachable", "certificate verify failed", "tlsCAFile"),
        ),
        f"{plain}&tls=true&tlsCAFile={other}/none.pem": ("InvalidURI", "No such file", "none.pem"),
    }
    with ExitStack() as stack:
        begun = [
            stack.enter_context(beginning(tmp_path / str(number), uri, clusters.destination.uri))
            for number, uri in enumerate(told)
        ]
        for process, texts in zip(begun, told.values(), strict=True):
            _, message = process.communicate(timeout=PATIENCE)
            assert process.returncode == 1
            assert message.startswith(f"syncsvc: {texts[0]}: cluster0: ")
            assert all(text in message for text in texts), message
            assert "tls=false" not in message
            assert password not in message
    for number in range(len(told)):
        assert password not in (tmp_path / str(number) / "syncsvc.log").read_text()
