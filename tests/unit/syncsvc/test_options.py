"""What follows from an option."""

from __future__ import annotations

import pytest

from syncsvc.options import BuildIndexes


@pytest.mark.parametrize(
    "build, after_copy, hashed",
    [
        (BuildIndexes.BEFORE_DATA_COPY, False, True),
        (BuildIndexes.AFTER_DATA_COPY, True, True),
        (BuildIndexes.EXCLUDE_HASHED, False, False),
        (BuildIndexes.EXCLUDE_HASHED_AFTER_COPY, True, False),
        (BuildIndexes.NEVER, False, False),
    ],
)
def test_indexes_are_built_before_or_after_the_copy_with_or_without_hashed_ones(
    build: BuildIndexes, after_copy: bool, hashed: bool
) -> None:
    assert (build.after_copy, build.hashed) == (after_copy, hashed)
