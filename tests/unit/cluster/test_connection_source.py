"""Connection strings come from options or private files.

While a client is open, only the password and the TLS files in its connection string may change.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from verifier.cluster.connect import tls_files, without_credentials
from verifier.cluster.connection_source import INVALID_CONNECTION_FILE, ConnectionSource
from verifier.runtime.errors import OperationError

SECRET = "S3cr3t"
URI = f"mongodb://user:{SECRET}@host/"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "uri"
    path.touch(mode=0o600)
    return path


def refusal(file: Path) -> str:
    with pytest.raises(OperationError) as raised:
        ConnectionSource("cluster0", path=file).read()
    assert raised.value.kind is INVALID_CONNECTION_FILE
    assert SECRET not in str(raised.value)
    return raised.value.description


def test_a_file_holds_one_line(file: Path) -> None:
    file.write_text(f"\n  {URI}\n")
    assert ConnectionSource("cluster0", path=file).read().uri == URI


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "connection string, but is empty"),
        (f"{URI} {URI}".encode(), "contains 2 words"),
        (f"# comment\n{URI}".encode(), "contains 3 words"),
        (b"\xff" + URI.encode(), "is not text in UTF-8"),
    ],
)
def test_other_contents_are_refused(file: Path, content: bytes, reason: str) -> None:
    file.write_bytes(content)
    assert reason in refusal(file)


def test_a_file_that_others_may_read_or_that_is_missing_is_refused(file: Path) -> None:
    file.write_text(URI)
    file.chmod(0o644)
    assert "can be accessed by other users" in refusal(file)
    file.unlink()
    assert "cannot be read" in refusal(file)


def test_a_new_certificate_is_a_change(tmp_path: Path) -> None:
    certificate = tmp_path / "client.pem"
    certificate.write_text("old")
    source = ConnectionSource("source", f"{URI}?tls=true&tlsCertificateKeyFile={certificate}")
    before = source.read()
    assert source.may_change and source.read() == before
    certificate.write_text("new")
    assert source.read() != before
    certificate.unlink()
    with pytest.raises(OperationError, match="cannot be read: .*client.pem"):
        source.read()


def test_a_file_name_that_no_system_allows_is_refused() -> None:
    with pytest.raises(OperationError, match="cannot be read"):
        ConnectionSource("source", f"{URI}?tlsCAFile=%00").read()


def test_a_plain_string_cannot_change() -> None:
    source = ConnectionSource("source", URI)
    assert not source.may_change
    assert SECRET not in repr((source, source.read()))


def test_tls_files_are_found_in_any_string() -> None:
    assert tls_files("mongodb://h/?tlscafile=%2Fa%20b&tlsCertificateKeyFile=/c") == ["/c", "/a b"]
    assert tls_files("mongodb://h/?x") == tls_files("") == []


@pytest.mark.parametrize(
    "former, new, same",
    [
        ("u:a@h/", "u:b@h/", True),
        ("u:a@h/?w=majority", "u:b@h/?W=majority", True),
        ("h/?tls=true&tlsCAFile=/dev/null", "h/?tls=true", True),
        ("u:a@h/", "v:a@h/", False),
        ("u:a@h/", "u:a@i/", False),
        ("u:a@h/", "u:a@h/?authSource=x", False),
        ("u:a@h/", "h/", False),
        ("h/?tls=true", "h/", False),
        ("u:a@h/?authMechanism=SCRAM-SHA-1", "u:a@h/", False),
        ("h/?appName=a", "h/?appName=b", False),
    ],
)
def test_only_the_password_and_tls_files_may_change(former: str, new: str, same: bool) -> None:
    parts = [without_credentials(f"mongodb://{each}") for each in (former, new)]
    assert (parts[0] == parts[1]) is same
