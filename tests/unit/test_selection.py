"""Tests which tests `make test`, `--full` and `--share` select, by running pytest in a separate process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.inner_pytest import run_pytest

TESTS = """
import pytest

from tests.support.selection import full


@pytest.mark.each_once
@pytest.mark.parametrize("a", "xyz")
@pytest.mark.parametrize("b", ["p", "q", full("r")])
def test_each(a, b):
    pass


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("phase", range(4))
def test_turns(phase):
    pass


@pytest.mark.in_turns
@pytest.mark.parametrize("phase", range(4))
def test_others_turns(phase):
    pass


@pytest.mark.full
def test_full():
    pass


@pytest.mark.parametrize("a", "xy")
@pytest.mark.parametrize("b", "pq")
def test_all(a, b):
    pass
"""
ALL = [f"all[{b}-{a}]" for b in "pq" for a in "xy"]
FEW = ["each[p-x]", "each[p-z]", "each[q-y]", "turns[1]", "turns[3]", "others_turns[0]", *ALL]
EACH = [f"each[{b}-{a}]" for b in "pqr" for a in "xyz"]
TURNS = [f"{name}[{n}]" for name in ("turns", "others_turns") for n in range(4)]
EVERY = [*EACH, *TURNS, "full", *ALL]


@pytest.mark.parametrize(
    "named, options, expected",
    [
        ("", (), FEW),
        ("", ("--full",), EVERY),
        ("::test_full", (), ["full"]),
        ("::test_each", (), EACH),
    ],
)
def test_the_selected_combinations_are_collected(
    tmp_path: Path, named: str, options: tuple[str, ...], expected: list[str]
) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    plugin = ("-p", "tests.support.selection")
    path = f"{tmp_path / 'test_it.py'}{named}"
    done = run_pytest(path, *plugin, "--collect-only", "-q", *options, rootdir=tmp_path)
    collected = [line.partition("::test_")[2] for line in done.stdout.splitlines() if "::" in line]
    assert sorted(collected) == sorted(expected)


def test_each_module_is_in_one_share(tmp_path: Path) -> None:
    names = {f"test_{n}.py" for n in range(8)}
    for name in names:
        (tmp_path / name).write_text("def test(): pass")
    shares = []
    for share in ("1/2", "2/2"):
        options = ("-p", "tests.support.selection", "--collect-only", "-q", "--share", share)
        done = run_pytest(tmp_path, *options, rootdir=tmp_path)
        assert done.returncode == 0, done.stdout
        shares.append(
            [line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line]
        )
    first, second = shares
    assert sorted([*first, *second]) == sorted(names)
    assert first and second


@pytest.mark.parametrize("share", ["3/2", "1"])
def test_an_impossible_share_is_refused(tmp_path: Path, share: str) -> None:
    done = run_pytest(tmp_path, "-p", "tests.support.selection", "--share", share, rootdir=tmp_path)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
