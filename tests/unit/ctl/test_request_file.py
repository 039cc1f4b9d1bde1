"""Tests how `syncctl` reads request bodies from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncsvc.ctl.client import ClientError
from syncsvc.ctl.exits import Exit
from syncsvc.ctl.request_file import read_request, start_request


def read(tmp_path: Path, text: str) -> dict[str, object]:
    file = tmp_path / "start.yaml"
    file.write_text(text)
    return read_request(file)


@pytest.mark.parametrize(
    "text",
    [
        '{"source": "cluster0", "reversible": true, "includeNamespaces": [{"database": "d"}]}',
        "source: cluster0\nreversible: true\nincludeNamespaces:\n- database: d\n",
    ],
)
def test_yaml_and_json_are_read(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == {
        "source": "cluster0",
        "reversible": True,
        "includeNamespaces": [{"database": "d"}],
    }


@pytest.mark.parametrize(
    "text, value",
    [
        ("1e3", 1000.0),
        ("-2E5", -200000.0),
        ("1.5e6", 1500000.0),
        ("1.5", 1.5),
        ("12", 12),
        ("-7", -7),
        ("true", True),
        ("null", None),
        ('"\\ud83d\\ude00"', "\U0001f600"),
    ],
)
def test_a_value_of_json_is_the_same_in_yaml(tmp_path: Path, text: str, value: object) -> None:
    bodies = [read(tmp_path, f'{{"a": {text}}}')]
    if "\\" not in text:
        bodies.append(read(tmp_path, f"a: {text}"))
    for body in bodies:
        assert body == {"a": value}
        assert type(body["a"]) is type(value)


@pytest.mark.parametrize(
    "text, value",
    [
        ("NO", "NO"),
        ("on", "on"),
        ("y", "y"),
        ("12:30", "12:30"),
        ("22:00", "22:00"),
        ("1_000", "1_000"),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        (".5", 0.5),
        ("~", None),
    ],
)
def test_yaml_is_read_as_yaml_1_2(tmp_path: Path, text: str, value: object) -> None:
    assert read(tmp_path, f"a: {text}") == {"a": value}


@pytest.mark.parametrize(
    "text, named",
    [
        ("source: cluster0\n  x: [", "line 2"),
        ("- a\n- b", "must contain fields"),
        ("", "must contain fields"),
        ("source: a\nsource: b", "source is given twice"),
        ("sharding:\n  a: 1\n  a: 2", "a is given twice"),
        ("includeNamespaces:\n- database: 2026-01-01", "includeNamespaces[0].database"),
        (
            "verification: {true: 1}",
            "verification: the name of a field must be a string, not True: write the name in quotes",
        ),
        ('{"a": 1, "a": 2}', "a is given twice"),
        (
            '{"a": NaN}',
            "a: JSON cannot represent the float nan; if it is a string, write it in quotes",
        ),
        ("a: .nan", "a: JSON cannot represent the float nan"),
        ("a: !!python/object:os.system x", "line 1"),
        ("a: &a {b: *a}", "refers to itself"),
        ("a: " + 5_000 * "[", "nested too deeply"),
        ("a: 2026-13-45", "not a valid timestamp"),
        ("a: " + 5_000 * "9", "cannot be read as YAML or JSON"),
        ("a: !!bool maybe", "not a valid bool"),
        ("a: 1\nb: !!int x", "line 2"),
        ("a: !!timestamp x", "a: !!timestamp x"),
        ("a: !!map [1]", "expected a mapping node"),
        ("!!bool maybe: 1", "not a valid bool"),
    ],
)
def test_a_wrong_field_or_line_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ClientError) as raised:
        read(tmp_path, text)
    assert named in raised.value.description
    assert raised.value.status is Exit.USAGE


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="absent.yaml"):
        read_request(tmp_path / "absent.yaml")


def test_without_a_file_everything_is_synced() -> None:
    assert start_request(None) == {"source": "cluster0", "destination": "cluster1"}
