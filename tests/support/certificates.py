"""TLS certificates for the servers of tests, each with its own CA."""

from __future__ import annotations

from pathlib import Path

import trustme

from syncsvc.sandbox.mongod import Certificates


def make_certificates(folder: Path) -> Certificates:
    """Create certificates for servers on loopback, in an existing folder."""
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    made = Certificates(folder / "authority.pem", folder / "server.pem")
    authority.cert_pem.write_to_path(str(made.authority))
    server.private_key_and_cert_chain_pem.write_to_path(str(made.server))
    return made
