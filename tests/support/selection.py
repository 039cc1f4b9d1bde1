"""A pytest plugin that selects the tests of `make test`; the option --full, and `make test-all`, run all tests.

The option `--share 1/2` runs only about half of the test modules, and `--share 2/2` the others. Two such runs at
the same time take less CPU time than pytest-xdist, which is for longer tests: each run imports and collects only its
own modules, and sends no reports of short tests to another process. A hash of its path decides the share of a module.

Three marks leave tests out. `full` marks a test, or a value of a parameter, that repeats other tests in more steps,
modes or phases, or for a rare case of the same feature. `each_once` marks a test with several parameters: the chosen
combinations contain each value of each parameter at least once. `in_turns(n)` marks a test that repeats itself in
several phases or modes: only n combinations run, and different tests run different ones, so that some test runs in each
phase. If the command line names a test (`file::test`), nothing is left out.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

Value = tuple[str, str]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run all tests, as `make test-all` does")
    parser.addoption("--share", type=_share, metavar="N/M", help="run only share N of M shares")


def _share(text: str) -> tuple[int, int]:
    number, _, shares = text.partition("/")
    if not 1 <= int(number) <= int(shares):
        raise ValueError
    return int(number), int(shares)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a module of another share, before it is imported."""
    share: tuple[int, int] | None = config.getoption("share")
    if share is None or collection_path.suffix != ".py":
        return None
    number, shares = share
    path = os.path.relpath(collection_path, config.rootpath)
    return True if crc32(path.encode()) % shares != number - 1 else None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: only run with --full")
    config.addinivalue_line(
        "markers", "each_once: run all combinations of parameters with --full only"
    )
    config.addinivalue_line("markers", "in_turns(n): run more than n combinations with --full only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("full") or any("::" in each for each in config.args):
        return
    left_out = {item for item in items if item.get_closest_marker("full")}
    products: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item not in left_out:
            products[item.nodeid.partition("[")[0]].append(item)
    for name, combinations in products.items():
        left_out |= {*combinations} - {*_chosen(name, combinations)}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _chosen(name: str, combinations: list[pytest.Item]) -> list[pytest.Item]:
    """Return the combinations of a test's parameters to run.

    These are all of `combinations`, or only some of them if the test has the mark `each_once` or `in_turns`. `name` is
    the name of the test.
    """
    if combinations[0].get_closest_marker("each_once"):
        combinations = covering(combinations)
    turns = combinations[0].get_closest_marker("in_turns")
    return combinations if turns is None else in_turns(name, combinations, *turns.args)


def in_turns(name: str, combinations: list[pytest.Item], number: int = 1) -> list[pytest.Item]:
    """Return `number` of the combinations, evenly spaced. The name of the test determines the first combination."""
    number = min(number, len(combinations))
    first, step = crc32(name.encode()), len(combinations) / number
    return [combinations[(first + int(n * step)) % len(combinations)] for n in range(number)]


def full(*values: Any) -> Any:
    """Return these parameter values for a test, marked so that the test runs with them only with --full."""
    return pytest.param(*values, marks=pytest.mark.full)


def covering(combinations: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return a few combinations that cover every value of every parameter, about equally often."""
    values = {item: _values(item) for item in combinations}
    missing = set[Value]().union(*values.values())
    uses = Counter[Value]()

    def gain(item: pytest.Item) -> tuple[int, int]:
        return len(values[item] & missing), -sum(uses[each] for each in values[item])

    chosen = []
    while missing:
        best = max(values, key=gain)
        chosen.append(best)
        uses.update(values[best])
        missing -= values[best]
    return chosen


def _values(item: pytest.Item) -> set[Value]:
    return {(name, repr(value)) for name, value in getattr(item, "callspec").params.items()}
