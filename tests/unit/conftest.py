"""What holds for all unit tests: properties are tried on the same examples in every run, without a time limit each."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unit", max_examples=60, deadline=None, derandomize=True, database=None)
settings.load_profile("unit")
