"""Saved speed limits of a sync that this version cannot read are refused with a named error, without a crash.

Fields that this version does not know are ignored.
"""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc.limits import Limits
from syncsvc.saved.limits import _read
from verifier.runtime.errors import OperationError

WINDOW = {"from": "22:00", "to": "06:00", "timezone": "UTC", "limits": {}}


@pytest.mark.parametrize(
    "document",
    [
        None,
        "text",
        {"threads": "many"},
        {"windows": 5},
        {"windows": [{}]},
        {"windows": [{**WINDOW, "from": "25:00"}]},
        {"windows": [{**WINDOW, "timezone": "Mars/Olympus"}]},
        {"auto": {"maxQueue": "long"}},
        {"auto": [1]},
    ],
)
def test_unreadable_limits_are_refused(document: Any) -> None:
    with pytest.raises(OperationError) as error:
        _read(document, "metadata")
    assert error.value.kind.name == "IncompatibleMetadata"


def test_fields_of_a_later_version_are_ignored() -> None:
    later = {"speed": 5, "windows": [{**WINDOW, "days": []}], "auto": {"smart": True}}
    assert _read(later, "metadata").windows[0].rates == {}
    assert _read({}, "metadata") == Limits()
