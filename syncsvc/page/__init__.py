"""The page of the sync service, at `/`. Its scripts show the overview and send commands."""

from __future__ import annotations

from pathlib import Path

from flask import Blueprint

import verifier.page


def blueprint() -> Blueprint:
    """Return the Flask blueprint that serves the page and its scripts."""
    return verifier.page.blueprint(Path(__file__).parent / "static")
