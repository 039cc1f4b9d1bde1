"""Replaces a password or certificate while a sync or a check runs: it must wait, and continue with the new one.

Other tests write unusable credentials to the files, which must be refused or reported, and change nothing.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote_plus

import pytest
import trustme

from syncsvc.engine.run.points import Point
from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.replica_set import Client
from tests.support.certificates import CLIENT, write_certificates, write_client
from tests.support.daemon import Daemon
from tests.support.pair import Pair, Side
from tests.support.roles import READER
from tests.support.service_process import ServiceProcess
from tests.support.verifier import Verifier
from tests.support.waiting import wait_for
from verifier.cluster import renewal
from verifier.cluster.connection_source import ConnectionSource
from verifier.cluster.failures import temporary
from verifier.cluster.renewal import Renewal
from verifier.runtime.retry import retry
from verifier.runtime.tasks import Cancelled, StopToken, TaskGroup

DOCUMENTS = 2_000
OLD, NEW = "0ld-s3cret", "n3w-s3cret"


@dataclass(frozen=True)
class Guarded:
    """A source with access control, a destination without, and a file with the connection string of each."""

    source: ReplicaSet
    pair: Pair
    files: tuple[Path, Path]

    def rotate(self) -> None:
        """Change the password of the service's user on the source, and restart the server to end all connections."""
        with self.source.client() as client:
            client.admin.command("updateUser", "rotated", pwd=NEW)
        self.source.kill_member(0)
        self.source.restart_member(0)

    def write(self, password: str, **changes: str) -> None:
        uri = self.source.root_uri.rpartition("@")[2]
        text = f"mongodb://rotated:{password}@{uri}"
        for old, new in changes.items():
            text = text.replace(old, new)
        self.files[0].write_text(f"{text}\n")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    with ExitStack() as stack:
        source = stack.enter_context(ReplicaSet(name="source", access_control=True))
        destination = stack.enter_context(ReplicaSet(name="destination"))
        clients = [stack.enter_context(each.client()) for each in (source, destination)]
        clients[0].admin.command("createUser", "rotated", pwd=OLD, roles=[*READER, "backup"])
        clients[0].d.c.insert_many({"_id": n, "pad": "p" * 500} for n in range(DOCUMENTS))
        sides = [Side(source.root_uri, clients[0]), Side(destination.uri, clients[1])]
        files = tmp_path / "source.uri", tmp_path / "destination.uri"
        for each in files:
            each.touch(mode=0o600)
        files[1].write_text(destination.uri)
        found = Guarded(source, Pair(sides[0], sides[1]), files)
        found.write(OLD)
        yield found


@pytest.fixture
def daemon(guarded: Guarded, tmp_path: Path) -> Iterator[Daemon]:
    """Return a daemon that is not started, and that copies small ranges with one reader."""
    process = Daemon(*guarded.files, tmp_path, "--loadLevel", "1")
    process.copy_in_small_steps(100_000)
    yield process
    process.close()


def _assert_no_secret(process: ServiceProcess) -> None:
    shown = process.log + process.output + process.get("progress").text
    for secret in (OLD, NEW):
        assert secret not in shown


@pytest.mark.in_turns
@pytest.mark.parametrize("phase", ["copy", "change events"])
def test_a_sync_waits_for_the_new_password_and_uses_it(
    phase: str, guarded: Guarded, daemon: Daemon
) -> None:
    daemon.run()
    if phase == "copy":
        with daemon.held_at(Point.BATCH_WRITTEN, number=3):
            daemon.start()
            daemon.wait_until_reached(Point.BATCH_WRITTEN, number=3)
            guarded.rotate()
    else:
        daemon.start()
        daemon.wait_until_committable()
        guarded.rotate()
    daemon.wait_for_warning("Authentication failed")
    assert daemon.progress()["state"] == "RUNNING"
    guarded.pair.source.client.d.c.update_many({"_id": {"$lt": 50}}, {"$set": {"later": True}})
    guarded.write(NEW)
    wait_for(lambda: "use new credentials" in daemon.log, "the new credentials")
    daemon.commit()
    guarded.pair.assert_equal()
    # The warning may end later, because a thread can still sleep until its next attempt.
    daemon.wait_without_warning("Authentication failed")
    _assert_no_secret(daemon)


@pytest.mark.full
def test_unusable_files_change_nothing_and_are_reported(guarded: Guarded, daemon: Daemon) -> None:
    daemon.run()
    daemon.start()
    daemon.wait_until_applying()
    for changes, reason in (
        ({"rotated": "another"}, "in more than the passwords"),
        ({"127.0.0.1": "localhost"}, "in more than the passwords"),
        ({"/?": "/?w=1&"}, "in more than the passwords"),
        ({"?": " ?"}, "must contain only the connection string"),
        ({NEW: "100%"}, "must be percent-encoded"),
    ):
        guarded.write(NEW, **changes)
        daemon.signal(signal.SIGHUP)
        daemon.wait_for_warning(reason)
    guarded.write(NEW)
    daemon.wait_for_warning("Authentication failed")
    guarded.write(OLD)
    daemon.wait_without_warning("cannot be renewed")
    daemon.commit()
    guarded.pair.assert_equal()
    _assert_no_secret(daemon)


def test_a_file_that_others_may_read_is_refused(guarded: Guarded, daemon: Daemon) -> None:
    guarded.files[0].chmod(0o644)
    daemon.launch()
    assert daemon.wait_until_ended() == 1
    assert "InvalidConnectionFile" in daemon.output + daemon.log
    assert OLD not in daemon.output + daemon.log


@pytest.mark.full
def test_the_verifier_uses_a_new_password(guarded: Guarded, tmp_path: Path) -> None:
    guarded.pair.destination.client.d.c.insert_many(guarded.pair.source.client.d.c.find())
    verifier = Verifier(*guarded.files, tmp_path, "--verifyAll", "--graceSeconds", "0")
    with verifier.running():
        verifier.check()
        guarded.rotate()
        guarded.write(NEW)
        wait_for(lambda: "use new credentials" in verifier.log, "the new credentials")
        verifier.writes_off()
        verifier.assert_passed(verifier.wait_for_verdict())
        _assert_no_secret(verifier)


def test_a_refusal_is_logged_once_for_each_file(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Renew unusable credentials several times: each new content of the file, and each new reason, is logged once."""
    file = tmp_path / "source.uri"
    file.touch(mode=0o600)
    file.write_text(pair.source.uri)
    renewed = Renewal("test")
    opened = renewed.open_cluster(ConnectionSource("source", path=file))
    with opened.client, caplog.at_level(logging.ERROR, renewal.__name__):
        for text, logged in (("first", 1), ("second", 2), (f"{pair.source.uri}&w=1", 3)):
            file.write_text(text)
            for _ in range(3):
                assert not renewed._opened[0].renew()
            assert len(caplog.records) == logged
            assert renewed._opened[0]._wait is not None
        file.write_text(pair.source.uri)
        assert renewed._opened[0].renew()
        assert renewed._opened[0]._wait is None
        file.write_text("first")
        assert not renewed._opened[0].renew()
        file.write_text(pair.source.uri)
        assert renewed._opened[0].renew()
    assert len(caplog.records) == 4


def test_new_certificates_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the certificate authority and all certificates: the client must reconnect with the new ones.

    Before that, the client must refuse a certificate of another user.
    """
    monkeypatch.setattr(renewal, "_PAUSE", 0.2)
    monkeypatch.setattr(renewal, "_POLL", 0.2)
    certificate = tmp_path / "client.pem"
    authority = trustme.CA()
    files = write_certificates(authority, tmp_path)
    write_client(authority, certificate)
    with ReplicaSet(name="source", access_control=True, certificates=files) as replica_set:
        with replica_set.client() as client:
            client["$external"].command("createUser", CLIENT, roles=[])
            other = CLIENT.replace("Migration", "Other")
            client["$external"].command("createUser", other, roles=[])
        hosts = replica_set.root_uri.rpartition("@")[2]
        key = f"tlsCertificateKeyFile={quote_plus(str(certificate))}"
        uri = f"mongodb://{hosts}&authMechanism=MONGODB-X509&{key}"
        renewed = Renewal("test")
        opened = renewed.open_cluster(ConnectionSource("source", uri))
        stop = StopToken()
        try:
            with TaskGroup("test", stop) as group:
                group.spawn("credentials", renewed.run, stop)
                write_client(authority, certificate, unit="Other")
                wait_for(lambda: renewed._opened[0]._wait is not None, "the refusal")
                assert "a different user" in str(renewed._opened[0]._wait)
                newer = trustme.CA()
                write_certificates(newer, tmp_path)
                write_client(newer, certificate)
                replica_set.members[0].restart()
                retry(lambda: _user(opened.client), temporary, stop)
                assert _user(opened.client) == CLIENT
                stop.stop("the end of the test")
        except Cancelled:
            pass
        finally:
            opened.client.close()


@pytest.mark.full
@pytest.mark.parametrize("phase", ["copy", "change events"])
def test_a_sync_uses_new_certificates(phase: str, pair: Pair, tmp_path: Path) -> None:
    """Replace the certificate authority and all certificates of the source while a sync copies, or applies events.

    The sync must continue with the new certificates.
    """
    certificate = tmp_path / "client.pem"
    authority = trustme.CA()
    files = write_certificates(authority, tmp_path)
    write_client(authority, certificate)
    with ReplicaSet(name="source", access_control=True, certificates=files) as source:
        with source.client() as client:
            roles = [{"role": each, "db": "admin"} for each in (*READER, "backup")]
            client["$external"].command("createUser", CLIENT, roles=roles)
            client.d.c.insert_many({"_id": n, "pad": "p" * 500} for n in range(DOCUMENTS))
        hosts = source.root_uri.rpartition("@")[2]
        key = f"tlsCertificateKeyFile={quote_plus(str(certificate))}"
        uri = f"mongodb://{hosts}&authMechanism=MONGODB-X509&{key}"
        daemon = Daemon(uri, pair.destination.uri, tmp_path, "--loadLevel", "1")
        daemon.copy_in_small_steps(100_000)
        with daemon.running():
            if phase == "copy":
                with daemon.held_at(Point.BATCH_WRITTEN, number=3):
                    daemon.start()
                    daemon.wait_until_reached(Point.BATCH_WRITTEN, number=3)
                    _renew(source, certificate)
            else:
                daemon.start()
                daemon.wait_until_committable()
                _renew(source, certificate)
            with source.client() as client:
                client.d.c.update_many({"_id": {"$lt": 50}}, {"$set": {"later": True}})
                daemon.commit()
                Pair(Side(source.root_uri, client), pair.destination).assert_equal()
            assert "use new credentials" in daemon.log


def _renew(replica_set: ReplicaSet, certificate: Path) -> None:
    """Replace all certificates by those of a new authority, and restart the server to end all connections."""
    authority = trustme.CA()
    write_certificates(authority, certificate.parent)
    write_client(authority, certificate)
    replica_set.kill_member(0)
    replica_set.restart_member(0)


def _user(client: Client) -> str:
    info = client.admin.command("connectionStatus")["authInfo"]
    name: str = info["authenticatedUsers"][0]["user"]
    return name
