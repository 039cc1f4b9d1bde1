"""Runs whole syncs and checks over connections with X.509, SCRAM and compression.

For SRV, the test only connects. For X.509 and compression, the tests also check what the servers report.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote_plus

import dns.message
import dns.rcode
import dns.rdatatype
import dns.resolver
import dns.rrset
import pytest
import trustme

from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.replica_set import Client
from tests.support.certificates import CLIENT, write_certificates, write_client
from tests.support.daemon import Daemon
from tests.support.pair import Pair, Side
from tests.support.roles import READER, WRITER
from tests.support.verifier import Verifier
from verifier.cluster.cluster import open_cluster
from verifier.cluster.connect import INVALID_URI, check_uri
from verifier.cluster.facts import gather
from verifier.cluster.failures import CLUSTER_UNREACHABLE
from verifier.runtime.errors import OperationError

DOCUMENTS = 500
DESTINATION = (*WRITER, "restore")


def _fill(client: Client) -> None:
    client.d.c.insert_many({"_id": n, "text": "compressible " * 50} for n in range(DOCUMENTS))
    client.d.c.create_index("text")


def _sync_and_check(pair: Pair, uris: tuple[str, str], folder: Path) -> tuple[Daemon, Verifier]:
    """Run a sync with writes after the copy, then a check by the standalone verifier.

    `uris` are the connection strings of the source and the destination. Return both processes, which have ended.
    """
    _fill(pair.source.client)
    daemon = Daemon(*uris, folder / "daemon")
    verifier = Verifier(*uris, folder / "verifier", "--verifyAll", "--graceSeconds", "0")
    for each in (daemon, verifier):
        each.folder.mkdir()
    with daemon.running():
        daemon.start()
        daemon.wait_until_applying()
        pair.source.client.d.c.update_many({"_id": {"$lt": 100}}, {"$set": {"later": True}})
        daemon.commit()
        pair.assert_equal()
    with verifier.running():
        verifier.assert_passed(verifier.verify())
    return daemon, verifier


@dataclass(frozen=True)
class Secured:
    """Two replica sets with TLS and access control.

    `uris` are connection strings with the certificate of a user that both replica sets know.
    """

    pair: Pair
    uris: tuple[str, str]


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    authority = trustme.CA()
    certificate = tmp_path / "client.pem"
    write_client(authority, certificate)
    with ExitStack() as stack:
        sides, uris = [], []
        for name, roles in (("source", READER), ("destination", DESTINATION)):
            folder = tmp_path / name
            folder.mkdir()
            files = write_certificates(authority, folder)
            each = stack.enter_context(
                ReplicaSet(name=name, access_control=True, certificates=files)
            )
            client = stack.enter_context(each.client())
            client["$external"].command("createUser", CLIENT, roles=_of_admin(roles))
            sides.append(Side(each.root_uri, client))
            anonymous = f"mongodb://{each.root_uri.rpartition('@')[2]}"
            key = f"tlsCertificateKeyFile={quote_plus(str(certificate))}"
            uris.append(f"{anonymous}&authMechanism=MONGODB-X509&{key}")
        yield Secured(Pair(sides[0], sides[1]), (uris[0], uris[1]))


def _of_admin(roles: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"role": each, "db": "admin"} for each in roles]


def test_a_wrong_tls_option_is_named(secured: Secured, pair: Pair) -> None:
    soon = "serverSelectionTimeoutMS=2000"
    host = secured.uris[0].partition("?")[0]
    plain = f"{host}?replicaSet=source&{soon}"
    for uri, hint in (
        (plain, "set tls=true"),
        (f"{pair.source.uri}&tls=true&{soon}", "set tls=false"),
    ):
        with pytest.raises(OperationError) as raised:
            open_cluster("source", uri, "test")
        assert raised.value.kind is CLUSTER_UNREACHABLE
        assert raised.value.description.endswith(f"{hint}.")


def test_x509(secured: Secured, tmp_path: Path) -> None:
    with Client(secured.uris[0]) as client:
        info = client.admin.command("connectionStatus")["authInfo"]
        assert info["authenticatedUsers"] == [{"user": CLIENT, "db": "$external"}]
    _sync_and_check(secured.pair, secured.uris, tmp_path)


@pytest.mark.full
def test_x509_with_the_certificate_of_another_authority(secured: Secured, tmp_path: Path) -> None:
    write_client(trustme.CA(), tmp_path / "client.pem")
    daemon = Daemon(*secured.uris, tmp_path)
    try:
        daemon.launch()
        assert daemon.wait_until_ended() == 1
        assert "ClusterUnreachable" in daemon.output + daemon.log
    finally:
        daemon.close()


@pytest.mark.in_turns
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256"])
def test_scram(mechanism: str, tmp_path: Path) -> None:
    with (
        ReplicaSet(name="source", access_control=True) as source,
        ReplicaSet(name="destination", access_control=True) as destination,
        source.client() as of_source,
        destination.client() as of_destination,
    ):
        uris = []
        for each, client, roles in (
            (source, of_source, READER),
            (destination, of_destination, DESTINATION),
        ):
            client.admin.command(
                "createUser",
                "one mechanism",
                pwd="pass word",
                roles=[*roles],
                mechanisms=[mechanism],
            )
            hosts = each.root_uri.rpartition("@")[2]
            user = "one%20mechanism:pass%20word"
            uris.append(f"mongodb://{user}@{hosts}&authSource=admin&authMechanism={mechanism}")
        pair = Pair(Side(source.root_uri, of_source), Side(destination.root_uri, of_destination))
        daemon, verifier = _sync_and_check(pair, (uris[0], uris[1]), tmp_path)
    for process in (daemon, verifier):
        for secret in ("pass word", "pass%20word", "pass+word"):
            assert secret not in process.log + process.output


def test_an_srv_name_leads_to_the_members(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect with a mongodb+srv URI: its DNS records must lead to the member.

    The test's own DNS server answers SRV and TXT queries. A stand-in for `getaddrinfo` returns the member's address.
    """
    port = int(pair.source.uri.partition("/?")[0].rpartition(":")[2])
    name, host = "cluster.syncsvc.example", "member.syncsvc.example"
    records = {
        (f"_mongodb._tcp.{name}.", "SRV"): f"0 0 {port} {host}.",
        (f"{name}.", "TXT"): '"replicaSet=source"',
    }
    lookup = socket.getaddrinfo

    def local(wanted: str, *more: Any, **options: Any) -> Any:
        return lookup("127.0.0.1" if wanted == host else wanted, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", local)
    with _name_server(records) as server:
        resolver = dns.resolver.Resolver(configure=False)
        resolver.nameservers, resolver.port = ["127.0.0.1"], server
        monkeypatch.setattr(dns.resolver, "default_resolver", resolver)
        cluster = open_cluster("source", f"mongodb+srv://{name}/?tls=false", "test")
        with cluster.client as client:
            assert cluster.facts.identity == gather(pair.source.client).identity
            assert client.options.replica_set_name == "source"
        with pytest.raises(OperationError, match="InvalidURI|refused") as raised:
            open_cluster("source", f"mongodb+srv://user:S3cr3t@other.{name}/", "test")
    assert raised.value.kind is INVALID_URI and "S3cr3t" not in str(raised.value)


@contextmanager
def _name_server(records: dict[tuple[str, str], str]) -> Iterator[int]:
    """Answer DNS queries on a local UDP port within the block; yield the port.

    `records` maps a name and a record type, such as SRV, to the data of the record.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        answering = Thread(target=_answer, args=(server, records), daemon=True)
        answering.start()
        try:
            yield server.getsockname()[1]
        finally:
            # An empty message ends the thread.
            server.sendto(b"", server.getsockname())
            answering.join()


def _answer(server: socket.socket, records: dict[tuple[str, str], str]) -> None:
    while True:
        message, client = server.recvfrom(4096)
        if not message:
            return
        query = dns.message.from_wire(message)
        answer = dns.message.make_response(query)
        question = query.question[0]
        kind = dns.rdatatype.to_text(question.rdtype)
        text = records.get((question.name.to_text(), kind))
        if text is None:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        else:
            answer.answer.append(dns.rrset.from_text(question.name, 60, "IN", kind, text))
        server.sendto(answer.to_wire(), client)


def _is_missing(compressor: str) -> bool:
    try:
        check_uri(f"mongodb://host/?compressors={compressor}")
    except OperationError:
        return True
    return False


@pytest.mark.parametrize(
    "compressor",
    [
        "zlib",
        *(
            pytest.param(
                each,
                marks=pytest.mark.skipif(_is_missing(each), reason=f"the extra {each} is missing"),
            )
            for each in ("snappy", "zstd")
        ),
    ],
)
def test_compression(compressor: str, pair: Pair, tmp_path: Path) -> None:
    before = [_uncompressed(side, compressor) for side in (pair.source, pair.destination)]
    source, destination = (
        f"{side.uri}&compressors={compressor}" for side in (pair.source, pair.destination)
    )
    _sync_and_check(pair, (source, destination), tmp_path)
    after = [_uncompressed(side, compressor) for side in (pair.source, pair.destination)]
    size = DOCUMENTS * 650
    # The source sends the documents compressed, and the destination receives them compressed.
    assert after[0][0] - before[0][0] > size
    assert after[1][1] - before[1][1] > size


def _uncompressed(side: Side, compressor: str) -> tuple[int, int]:
    """Return the uncompressed size in bytes of all compressed messages that the server has sent, and has received."""
    figures = side.client.admin.command("serverStatus")["network"]["compression"][compressor]
    return figures["compressor"]["bytesIn"], figures["decompressor"]["bytesOut"]
