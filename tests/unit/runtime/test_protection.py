"""The API listens on non-loopback addresses only with tokens and TLS, or with --insecureRemote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verifier.runtime.protection import Protection, ProtectionOptions, read_options

FILES = {"tokenFile": "t", "tlsCertFile": "c", "tlsKeyFile": "k"}
LOOPBACK = ["127.0.0.1", "127.0.0.9", "::1", "localhost"]
REMOTE = [
    "0.0.0.0",
    "::",
    "",
    "10.1.2.3",
    "db1.internal",
    "::ffff:10.1.2.3",
    "127.0.0.1.evil.example",
]


def options(address: str, **given: Any) -> ProtectionOptions:
    none = {"tokenFile": None, "tlsCertFile": None, "tlsKeyFile": None, "insecureRemote": False}
    return read_options({**none, "bindAddress": address, **given})


@pytest.mark.parametrize("address", LOOPBACK)
def test_loopback_needs_nothing(address: str) -> None:
    assert options(address) == ProtectionOptions()


@pytest.mark.parametrize("address", REMOTE)
def test_other_addresses_need_tokens_and_tls(address: str) -> None:
    tls = {"tlsCertFile": "c", "tlsKeyFile": "k"}
    for given in ({}, {"tokenFile": "t"}, tls):
        with pytest.raises(ValueError, match="not a loopback address"):
            options(address, **given)
    assert options(address, **FILES) == ProtectionOptions(Path("t"), Path("c"), Path("k"))
    assert options(address, **FILES, insecureRemote=True).exposed is None
    assert options(address, insecureRemote=True) == ProtectionOptions(exposed=address)


def test_a_log_line_says_that_the_api_is_exposed(caplog: pytest.LogCaptureFixture) -> None:
    Protection(ProtectionOptions())
    assert not caplog.records
    Protection(ProtectionOptions(exposed="0.0.0.0"))
    (record,) = caplog.records
    assert "insecureRemote is in force" in record.message
    assert "anyone who reaches the port controls this process" in vars(record)["danger"]
    assert vars(record)["address"] == "0.0.0.0"


@pytest.mark.parametrize("given", [{"tlsCertFile": "c"}, {"tlsKeyFile": "k"}], ids=str)
def test_certificate_and_key_need_each_other(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="need each other"):
        options("127.0.0.1", **given)
