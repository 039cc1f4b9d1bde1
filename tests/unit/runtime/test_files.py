"""Tests how files with secrets are opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from verifier.runtime.files import read_private


def test_a_directory_is_refused_without_leaking_a_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        with pytest.raises(ValueError, match="the file cannot be read: Is a directory"):
            read_private(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
