"""Writes files with API tokens for tests."""

from __future__ import annotations

from pathlib import Path

READER = "reader-token-0123456789"
OPERATOR = "operator-token-0123456789"


def write_tokens(
    folder: Path, text: str = f"reader {READER} rita\noperator {OPERATOR} otto\n"
) -> Path:
    """Write a token file that only its owner can read, and return its path.

    Each line of `text` contains a role, a token and the name of the caller.
    """
    path = folder / "tokens"
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
