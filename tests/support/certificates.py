"""Creates TLS certificates for the servers and users of tests."""

from __future__ import annotations

from pathlib import Path

import trustme

from syncsvc.sandbox.mongod import Certificates

# The subject of the default certificate of `write_client`, in the form of a user name.
CLIENT = "OU=Migration,O=syncsvc"


def make_certificates(folder: Path) -> Certificates:
    """Create a certificate authority, and a server certificate for 127.0.0.1.

    Write them to files in `folder`, which must exist, and return the paths.
    """
    return write_certificates(trustme.CA(), folder)


def write_certificates(authority: trustme.CA, folder: Path) -> Certificates:
    """Write the CA certificate of `authority`, and a new server certificate for 127.0.0.1, to files in `folder`.

    Overwrite existing files, and return the paths.
    """
    server = authority.issue_cert("127.0.0.1")
    made = Certificates(folder / "authority.pem", folder / "server.pem")
    for each in (made.authority, made.server):
        each.unlink(missing_ok=True)
    authority.cert_pem.write_to_path(str(made.authority))
    server.private_key_and_cert_chain_pem.write_to_path(str(made.server))
    return made


def write_client(authority: trustme.CA, path: Path, unit: str = "Migration") -> None:
    """Write a new client certificate of `authority`, with its key, to a file; overwrite an existing file.

    With the default `unit`, the certificate is that of the user `CLIENT`.
    """
    issued = authority.issue_cert(
        "client.example", organization_name="syncsvc", organization_unit_name=unit
    )
    path.unlink(missing_ok=True)
    issued.private_key_and_cert_chain_pem.write_to_path(str(path))
