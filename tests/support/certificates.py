"""TLS certificates for the servers of tests. Each call creates a new certificate authority."""

from __future__ import annotations

from pathlib import Path

import trustme

from syncsvc.sandbox.mongod import Certificates


def make_certificates(folder: Path) -> Certificates:
    """Create a CA and a certificate for servers on loopback; write them to files in `folder`, which must exist."""
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    made = Certificates(folder / "authority.pem", folder / "server.pem")
    authority.cert_pem.write_to_path(str(made.authority))
    server.private_key_and_cert_chain_pem.write_to_path(str(made.server))
    return made
