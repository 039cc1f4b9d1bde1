"""Secrets are removed from the files that `syncctl diagnose` collects, and other text stays."""

from __future__ import annotations

import json
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncsvc.ctl.redaction import redacted

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
        'Authorization: Digest username="admin", uri="/", response="hunter2"',
        'curl -H \'Authorization: Digest username="admin", response="hunter2"\' http://host',
        json.dumps({"headers": {"Authorization": 'Digest username="admin", response="hunter2"'}}),
        json.dumps({"message": 'sent Digest username="admin", response="hunter2"'}),
        "Proxy-Authorization: Negotiate hunter2",
        "Authorization: AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=hunter2",
        "passphrase: hunter2",
        "passphrase: correct, horse hunter2",
        "key_passphrase = 'it''s hunter2'",
        "mongodump --password hunter2",
        'mongodump --password "my hunter2"',
        "mongodump --tlsCertificateKeyFilePassword='my hunter2'",
        "PGPASSWORD=hunter2",
        "password=it'shunter2",
        "password=a,hunter2",
        "password=a}hunter2",
        'password=a"hunter2',
        "passphrase: a}hunter2",
        'passphrase: a"hunter2',
        "mongodump --password a}hunter2",
        "AWS_SESSION_TOKEN=hunter2",
        "aws_session_token = hunter2",
        '{"SessionToken": "hunter2", "Expiration": "2026"}',
        "X-Amz-Security-Token: hunter2",
        "https://bucket/?X-Amz-Security-Token=hunter2&x=1",
        "X-Api-Key: hunter2",
        "access_token: hunter2",
        "VERIFIER_TOKEN=hunter2",
        "SYNCSVC_WEBHOOK=https://alerts.example/services/hunter2",
        "syncsvc --webhook 'https://alerts.example/hunter2' --port 1",
        json.dumps({"webhook": "https://alerts.example/?key=hunter2"}),
        json.dumps({"credentials": {"SCRAM-SHA-256": {"storedKey": "hunter2"}}}),
        '{"serverKey": "hunter2"}',
        "operator hunter2hunter2hunter2 alice",
        "# tokens\nreader  hunter2/hunter2.hunter2==\n# operator hunter2+hunter2~hunter2",
        json.dumps({"read": "# tokens\noperator hunter2hunter2hunter2 alice"}),
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
    for text in (
        "The operator restarted it; a reader may not. Add --passwordFile FILE, or --tokenFile.",
        "Not authorized on shop to execute find",
        '{"lsid": "82", "password": "", "host": "c"}',
        "No notices are delivered to the webhook https://alerts.example:8443",
        "resume_token=82ff",
    ):
        assert redacted(text) == text
    assert redacted("operator 0123456789abcdef alice") == "operator (redacted) alice"
    assert "@host:27017/db?replicaSet=a" in redacted("mongodb://u:p@host:27017/db?replicaSet=a")


PASSWORDS = st.text(st.characters(exclude_categories=["Cc", "Cs", "Z"]), min_size=1, max_size=20)


@given(PASSWORDS)
def test_no_password_of_a_connection_string_survives(password: str) -> None:
    marked = f"{password}hunter2"
    line = json.dumps({"message": f"Connecting to mongodb://user:{marked}@host/."})
    assert SECRET not in redacted(line)


@pytest.mark.parametrize(
    "piece", ["a", "a.", "password", "://a", "\\\\", "'", "-----BEGIN ", "token-", "A_", "webhook "]
)
def test_long_lines_take_little_time(piece: str) -> None:
    """The time to redact a very long line must not grow with the square of its length.

    The line is so long that searches from each piece to the end of the line would visit 20,000,000,000 characters.
    """
    text = round(200_000 / len(piece) ** 0.5) * piece
    began = process_time()
    redacted(text)
    assert process_time() - began < 10
