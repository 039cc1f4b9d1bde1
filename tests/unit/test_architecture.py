"""The packages syncsvc and verifier follow the rules for their structure, and each rule detects a violation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import syncsvc
from tests.unit import architecture
from tests.unit.architecture import Module, parse

Rule = Callable[[Iterable[Module]], Iterator[str]]

ROOT = Path(syncsvc.__file__).parents[1]


def name_of(rule: Rule) -> str:
    return rule.__name__


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    return architecture.load(ROOT)


@pytest.mark.parametrize("rule", architecture.RULES, ids=name_of)
def test_the_product_obeys_the_rule(modules: list[Module], rule: Rule) -> None:
    assert list(rule(modules)) == []


def test_modules_at_all_depths_are_checked_and_the_pure_ones_exist(modules: list[Module]) -> None:
    names = {module.name for module in modules}
    assert {
        "syncsvc",
        "syncsvc.cli",
        "syncsvc.engine.documents.translate",
        "verifier.runtime.tasks",
    } < names
    assert architecture.PURE < names


def test_every_allowed_broad_except_exists(
    modules: list[Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = architecture.BROAD_EXCEPTS_ALLOWED
    monkeypatch.setattr(architecture, "BROAD_EXCEPTS_ALLOWED", frozenset())
    found = [each.split() for each in architecture.broad_excepts(modules)]
    assert {(words[0].partition(":")[0], words[2]) for words in found} == allowed


def test_only_the_allowed_modules_start_threads(
    modules: list[Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(architecture, "THREAD_STARTERS", frozenset())
    places = {found.partition(":")[0] for found in architecture.threads(modules)}
    assert places == {"verifier.runtime.tasks"}


DIRECTIONS = [
    ("syncsvc.service", "import verifier.cli"),
    ("syncsvc.service", "from verifier.cli import main"),
    ("syncsvc.service", "from verifier import __version__"),
    ("syncsvc.service", "from verifier import runtime, cli"),
    ("syncsvc.service", "import syncsvc.sandbox"),
    ("syncsvc.engine.x", "from syncsvc import sandbox"),
    ("syncsvc.sandbox.x", "from syncsvc.errors import ALL"),
    ("syncsvc.sandbox.x", "from ..errors import ALL"),
    ("syncsvc.sandbox.x", "from verifier.runtime.retry import retry"),
    ("syncsvc.ctl.x", "from syncsvc.errors import ALL"),
    ("syncsvc.ctl.x", "from verifier.runtime.version import VERSION"),
    ("syncsvc.service", "import syncsvc.ctl"),
    ("verifier.cli", "import syncsvc"),
    ("verifier.errors", "from verifier import cli"),
    ("verifier.service", "from verifier.api import blueprint"),
    ("syncsvc.engine.run.context", "from syncsvc.settings import Settings"),
    ("syncsvc.saved.run", "from syncsvc.engine.run import points"),
    ("syncsvc.engine.run.x", "from syncsvc.engine.documents import translate"),
    ("syncsvc.engine.definitions.x", "import syncsvc.engine.events.ddl"),
    ("syncsvc.engine.x", "from syncsvc.reports.log_lines import lines"),
    ("syncsvc.engine.definitions.x", "from syncsvc.preflight.rules import violations"),
    ("syncsvc.preflight.x", "from syncsvc.engine.run.frontier import Frontier"),
    ("syncsvc.reports.x", "from syncsvc.engine import coordinator"),
    ("verifier.runtime.x", "from verifier.cluster import keys"),
    ("verifier.runtime.x", "import verifier.compare.documents"),
    ("verifier.runtime.x", "import bson"),
    ("verifier.runtime.x", "from pymongo.errors import PyMongoError"),
    ("verifier.cluster.x", "from ..compare import documents"),
    ("verifier.cluster.x", "def f():\n    import verifier.compare.documents as d"),
    ("verifier.compare.x", "from syncsvc.state import State"),
    (
        "verifier.cluster.x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from verifier.compare import mismatch",
    ),
]


@pytest.mark.parametrize("name, source", DIRECTIONS)
def test_an_import_in_the_wrong_direction_is_found(name: str, source: str) -> None:
    assert list(architecture.wrong_directions([parse(name, source)]))


@pytest.mark.parametrize(
    "name, source",
    [
        ("syncsvc.service", "from verifier import runtime"),
        ("syncsvc.service", "from verifier.compare.documents import DocumentPairing"),
        ("syncsvc.service", "from syncsvc import errors"),
        ("syncsvc.engine.coordinator", "from syncsvc.engine import cutover, oplog_watch"),
        ("syncsvc.engine.events.x", "import syncsvc.engine.copying.copy"),
        ("syncsvc.reports.x", "from syncsvc.preflight.judgement import Judgement"),
        ("syncsvc.sandbox.x", "from syncsvc.sandbox import ReplicaSet"),
        ("verifier.cli", "from verifier.compare import comparison\nimport verifier.app"),
        ("verifier.compare.x", "import verifier.cluster.keys"),
        ("verifier.runtime.x", "import threading, flask"),
    ],
)
def test_an_import_in_the_right_direction_passes(name: str, source: str) -> None:
    assert list(architecture.wrong_directions([parse(name, source)])) == []


@pytest.mark.parametrize("name", ["syncsvc.x", "verifier.x", "other"])
def test_a_module_in_no_layer_is_found(name: str) -> None:
    assert list(architecture.wrong_directions([parse(name, "")])) == [f"{name} lies in no layer"]


CYCLES = [
    {"verifier.a": "import verifier.a"},
    {"verifier.a": "from verifier import b", "verifier.b": "from verifier.a import f"},
    {"verifier.a": "import verifier.b", "verifier.b": "def f():\n    import verifier.a"},
    {
        "verifier.a": "import verifier.b",
        "verifier.b": "from .c import f",
        "verifier.c": "if TYPE_CHECKING:\n    from . import a",
    },
]


def package(sources: dict[str, str]) -> list[Module]:
    return [parse(name, source) for name, source in sources.items()]


@pytest.mark.parametrize("sources", CYCLES)
def test_a_cycle_is_found(sources: dict[str, str]) -> None:
    assert list(architecture.cycles(package(sources)))


def test_two_ways_to_one_module_are_no_cycle() -> None:
    sources = {"verifier.a": "from . import b, c", "verifier.b": "from . import c"}
    root = parse("verifier", "__version__ = '1'", package=True)
    assert list(architecture.cycles([root, *package({**sources, "verifier.c": ""})])) == []


def test_a_package_and_its_module_that_import_each_other_are_a_cycle() -> None:
    root = parse("verifier", "from .a import f", package=True)
    assert list(architecture.cycles([root, parse("verifier.a", "from . import other")]))


GUILTY: list[tuple[Rule, str, str]] = [
    (architecture.hidden_imports, "verifier.x", "import importlib\nimportlib.import_module('a')"),
    (architecture.hidden_imports, "verifier.x", "__import__('a')"),
    (architecture.threads, "verifier.x", "import threading\nthreading.Thread(target=f)"),
    (architecture.threads, "verifier.x", "from threading import Thread as T\nT()"),
    (architecture.threads, "verifier.x", "import threading as t\nclass A(t.Thread): pass"),
    (architecture.threads, "verifier.x", "from threading import Timer\nTimer(1, f)"),
    (architecture.threads, "verifier.x", "import concurrent.futures as f\nf.ThreadPoolExecutor()"),
    (architecture.sleeps, "verifier.x", "import time\ntime.sleep(1)"),
    (architecture.sleeps, "verifier.x", "from time import sleep as nap\nnap(1)"),
    (architecture.sleeps, "syncsvc.sandbox.x", "import time as t\nwait = t.sleep"),
    (architecture.prints, "syncsvc.service", "print('x')"),
    (architecture.prints, "syncsvc.democracy", "def f():\n    print('x')"),
    (architecture.vague_names, "verifier.runtime.utils", ""),
    (architecture.vague_names, "syncsvc.common.paths", ""),
    (architecture.vague_names, "syncsvc.helpers", ""),
    (architecture.vague_names, "syncsvc.misc", ""),
    (architecture.impure_modules, "syncsvc.state", "from pymongo import errors"),
    (architecture.impure_modules, "syncsvc.preflight.rules", "def f():\n    import flask"),
    (architecture.impure_modules, "verifier.cluster.keys", "from threading import Lock"),
    (architecture.impure_modules, "syncsvc.reports.other", "import pymongo"),
    (architecture.impure_modules, "syncsvc.engine.run.frontier", "import pymongo.errors"),
    (architecture.broad_excepts, "verifier.x", "try: f()\nexcept Exception: pass"),
    (architecture.broad_excepts, "verifier.x", "try: f()\nexcept: pass"),
    (architecture.broad_excepts, "verifier.x", "try: f()\nexcept (OSError, BaseException): pass"),
    (
        architecture.broad_excepts,
        "verifier.x",
        "from contextlib import suppress as s\ns(Exception)",
    ),
    (
        architecture.broad_excepts,
        "syncsvc.running.runner",
        "def _run_sync():\n  def inner():\n    try: f()\n    except Exception: pass",
    ),
    (architecture.long_functions, "verifier.x", "def f():\n" + "    g()\n" * 50),
    (architecture.log_fields, "verifier.x", "_log.info('x', extra={'name': 1})"),
    (architecture.log_fields, "verifier.x", "_log.info('x', extra={'a': 1, 'message': 1})"),
    (architecture.log_fields, "verifier.x", "_log.info('x', extra={'level': 1})"),
    (architecture.long_functions, "verifier.x", "class A:\n async def f():\n" + "  g()\n" * 50),
    (
        architecture.endless_warnings,
        "syncsvc.x",
        "def f():\n  p.warn(WarningKind.A, WarningKind.B)\n  p.end_warning(WarningKind.A)",
    ),
]


@pytest.mark.parametrize("rule, name, source", GUILTY)
def test_violations_of_a_rule_are_found(rule: Rule, name: str, source: str) -> None:
    assert list(rule([parse(name, source)]))


INNOCENT: list[tuple[Rule, str, str]] = [
    (architecture.threads, "verifier.runtime.tasks", "import threading\nthreading.Thread()"),
    (architecture.threads, "syncsvc.sandbox.x", "import threading\nthreading.Thread()"),
    (architecture.threads, "verifier.x", "import threading\nthreading.Lock()"),
    (architecture.sleeps, "verifier.x", "stop.sleep(1)"),
    (architecture.prints, "syncsvc.cli", "print('x')"),
    (architecture.prints, "syncsvc.sandbox.demo.display", "print('x')"),
    (architecture.prints, "verifier.x", "console.print('x')"),
    (architecture.impure_modules, "syncsvc.saved.run_store", "import pymongo"),
    (architecture.impure_modules, "syncsvc.engine.run.frontier", "import threading"),
    (architecture.impure_modules, "syncsvc.state", "import flasks\nfrom bson import int64"),
    (architecture.broad_excepts, "verifier.x", "try: f()\nexcept (OSError, ValueError): pass"),
    (
        architecture.broad_excepts,
        "syncsvc.running.runner",
        "def _run_sync():\n  try: f()\n  except Exception: pass",
    ),
    (architecture.long_functions, "verifier.x", "def f():\n" + "    g()\n" * 49),
    (architecture.log_fields, "verifier.x", "_log.info('x', extra={'error': 1})"),
    (
        architecture.endless_warnings,
        "syncsvc.x",
        "def f():\n  p.warn(WarningKind.A, t)\n"
        "def g():\n  for kind in (WarningKind.A, WarningKind.B):\n    p.end_warning(kind)",
    ),
]


@pytest.mark.parametrize("rule, name, source", INNOCENT)
def test_code_that_obeys_a_rule_passes(rule: Rule, name: str, source: str) -> None:
    assert list(rule([parse(name, source)])) == []
