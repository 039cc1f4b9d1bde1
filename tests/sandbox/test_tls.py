"""Tests that servers with certificates refuse clients without TLS, and that clients with TLS verify the server."""

from pathlib import Path

import pytest
from pymongo.errors import ServerSelectionTimeoutError

from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.replica_set import Client
from tests.support.certificates import make_certificates

# The timeout of connections that must fail, in milliseconds.
BRIEFLY = 300


def test_a_replica_set_with_tls(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    with ReplicaSet(members=3, access_control=True, certificates=certificates) as replica_set:
        with Client(replica_set.uri) as client:
            client.test.items.insert_one({})
        other = tmp_path / "other"
        other.mkdir()
        wrong = make_certificates(other).authority
        plain = f"mongodb://{replica_set.members[0].address}"
        for uri in (plain, f"{plain}/?tls=true", f"{plain}/?tls=true&tlsCAFile={wrong}"):
            with Client(uri, serverSelectionTimeoutMS=BRIEFLY) as client:
                with pytest.raises(ServerSelectionTimeoutError):
                    client.admin.command("hello")
