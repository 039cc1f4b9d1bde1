"""Tests how `syncctl` reads sizes, shows sizes, durations and names as text, and computes rates."""

from __future__ import annotations

from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncsvc.ctl.rates import Rates
from syncsvc.ctl.text import bytes_from, count, duration, percent, printable, share, size


@pytest.mark.parametrize(
    "text, number",
    [("500", 500), ("20MB", 20_000_000), ("1.5 gb", 1_500_000_000), ("7kB", 7_000), ("3B", 3)],
)
def test_sizes_are_read(text: str, number: int) -> None:
    assert bytes_from(text) == number


@pytest.mark.parametrize(
    "text", ["", "MB", "20MiB", "20XB", "fast", "20 M B", "infMB", "1e999", "nan"]
)
def test_other_texts_are_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size such as"):
        bytes_from(text)


def test_numbers_are_short() -> None:
    assert [size(each) for each in (None, 0, 999, 1_000, 1_234_567, 5 * 10**18)] == [
        *("unknown", "0 bytes", "999 bytes", "1.0 kB", "1.2 MB", "5,000.0 PB")
    ]
    assert [duration(each) for each in (None, 0, 59.6, 3_601, 90_061)] == [
        *("unknown", "0 s", "1 min", "1 h 1 s", "1 d 1 h")
    ]
    assert (count(1_234_567), percent(0.999), percent(None)) == ("1,234,567", "99 %", "unknown")
    assert [share(1, 4), share(5, 4), share(0, 0), share(1, None)] == [0.25, 1.0, 1.0, None]


@given(st.text())
def test_no_text_controls_the_terminal(text: str) -> None:
    shown = printable(text)
    assert all(each.isprintable() or category(each) == "Zs" for each in shown)


def test_control_characters_are_shown() -> None:
    assert printable("a\x1b[2Jb\tc\u202ed é") == "a\\x1b[2Jb\\tc\\u202ed é"


def test_rates_are_those_of_the_last_half_minute() -> None:
    rates = Rates()
    for second in range(100):
        rates.add(second, {"bytes": 1_000 * second if second < 50 else 50_000 + 10 * second})
    assert rates.per_second("bytes") == 10.0
    assert rates.seconds_left("bytes", 50_000 + 10 * 99 + 100) == 10.0
    assert (rates.per_second("other"), rates.seconds_left("bytes", None)) == (None, None)


def test_a_restart_begins_a_new_rate() -> None:
    rates = Rates()
    rates.add(0, {"events": 500})
    rates.add(10, {"events": 0})
    assert rates.per_second("events") is None
    rates.add(20, {"events": 100})
    assert rates.per_second("events") == 10.0
