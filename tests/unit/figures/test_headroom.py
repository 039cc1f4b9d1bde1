"""Change events are not slowed down while the oplog of the source could drop them."""

from __future__ import annotations

import math

import pytest

from syncsvc.figures.headroom import danger
from syncsvc.figures.progress import SpoolFigures

MINUTE = 60.0


def spool(share: float, active: bool = True) -> SpoolFigures:
    return SpoolFigures(active, int(share * 1000), 1000, 60, 1.0)


@pytest.mark.parametrize(
    "left, lag, held, before, endangered",
    [
        (math.inf, 0.0, None, False, False),
        (16 * MINUTE, 600.0, None, False, False),
        (14 * MINUTE, 0.0, None, False, True),
        # The danger ends only when the oplog has clearly more room.
        (16 * MINUTE, 0.0, None, True, True),
        (21 * MINUTE, 0.0, None, True, False),
        # An oplog that cannot be read is assumed to hold two hours.
        (None, None, None, False, False),
        (None, 100 * MINUTE, None, False, False),
        (None, 106 * MINUTE, None, False, True),
        # Events in the spool are safe until the spool fills up.
        (MINUTE, 9000.0, spool(0.5), False, False),
        (MINUTE, 9000.0, spool(0.81), False, True),
        (MINUTE, 9000.0, spool(0.75), True, True),
        (MINUTE, 9000.0, spool(0.69), True, False),
        (MINUTE, 9000.0, spool(0.1, active=False), False, True),
    ],
)
def test_the_oplog_comes_first(
    left: float | None, lag: float | None, held: SpoolFigures | None, before: bool, endangered: bool
) -> None:
    assert (danger(left, lag, held, before) is not None) is endangered
