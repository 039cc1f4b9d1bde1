"""Secrets do not get into an archive."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncsvc.ctl.archive import redacted

SECRET = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        "mongodb://admin:hunter2@host/?replicaSet=a",
        "mongodb+srv://admin:hunter2@host",
        "mongodb://admin:p@ss/hunter2@host",
        "mongodb://admin:it's-hunter2@host",
        json.dumps({"uri": 'mongodb://admin:a"hunter2@host'}),
        "https://user:hunter2@host/path",
        "mongodb://host/?tlsCertificateKeyFilePassword=hunter2&tls=true",
        "mongodb://host/?authMechanismProperties=AWS_SESSION_TOKEN:hunter2",
        '{"password": "hunter2"}',
        '{"tlsCertificateKeyFilePassword":"hunter2"}',
        json.dumps({"inner": json.dumps({"password": "hunter2"})}),
        '{"password": "my, hunter2"}',
        '{"password": "it\'s } hunter2"}',
        json.dumps({"password": 'my " hunter2'}),
        json.dumps({"inner": json.dumps({"password": "my hunter2"})}),
        "{'password': 'my, hunter2'}",
        "password=hunter2",
        "clientSecret: hunter2",
        "Authorization: Bearer hunter2",
        "authorization: Basic hunter2",
        "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2",
    ],
)
def test_secrets_are_removed(text: str) -> None:
    assert SECRET not in redacted(text)
    assert SECRET not in redacted(f"before {text} after")


def test_other_text_stays() -> None:
    text = '{"host": "a.example:27017", "email": "a@example.org", "resumeToken": {"_data": "82"}}'
    assert redacted(text) == text
    assert redacted('{"password": "a b", "host": "c"}') == '{"password": "(redacted)", "host": "c"}'
    assert "@host:27017/db?replicaSet=a" in redacted("mongodb://u:p@host:27017/db?replicaSet=a")


PASSWORDS = st.text(st.characters(exclude_categories=["Cc", "Cs", "Z"]), min_size=1, max_size=20)


@given(PASSWORDS)
def test_no_password_of_a_connection_string_survives(password: str) -> None:
    marked = f"{password}hunter2"
    line = json.dumps({"message": f"Connecting to mongodb://user:{marked}@host/."})
    assert SECRET not in redacted(line)
