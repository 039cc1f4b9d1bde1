"""Tests that CommandFailed, which another command on the same index can cause, is retried for a minute only."""

from __future__ import annotations

import pytest
from pymongo.errors import OperationFailure

from verifier.cluster import failures
from verifier.cluster.writer import ClusterWriter
from verifier.runtime import retry as retrying


class _Writer(ClusterWriter):
    """A writer whose command always fails with one code. It is its own stop token, whose pauses advance `clock`."""

    def __init__(self, code: int) -> None:
        self._code = code
        self._now = 0.0
        super().__init__(None, False, self)  # type: ignore[arg-type]

    def clock(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds

    def _once(self, *args: object) -> dict[str, object]:
        raise OperationFailure("Refused.", self._code)


def test_a_permanent_refusal_to_convert_an_index_ends_the_retries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = _Writer(failures.COMMAND_FAILED)
    monkeypatch.setattr(retrying, "monotonic", writer.clock)
    with pytest.raises(OperationFailure, match="Refused"):
        writer.run("d", {"insert": "c"}, is_done=lambda: False)
    assert 50 < writer.clock() < 70
