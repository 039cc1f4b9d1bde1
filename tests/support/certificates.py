"""Certificates for the servers of tests, each of an authority of its own."""

from __future__ import annotations

from pathlib import Path

import trustme

from syncsvc.sandbox.mongod import Certificates


def make_certificates(folder: Path) -> Certificates:
    """For servers on loopback; the files are in the folder, which exists."""
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    made = Certificates(folder / "authority.pem", folder / "server.pem")
    authority.cert_pem.write_to_path(str(made.authority))
    server.private_key_and_cert_chain_pem.write_to_path(str(made.server))
    return made
