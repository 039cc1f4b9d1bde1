"""The error tables are complete: each kind that a process can raise is in its table, and no kind is unused.

The remedy of each kind fits the product that shows it.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import pytest

import syncsvc
import syncsvc.errors
import verifier
import verifier.errors
from verifier.cluster import failures
from verifier.runtime.errors import ErrorKind, OperationError, Violations, as_rst, in_words_of

# Modules that only list kinds, and never raise one.
LISTS = ("syncsvc.errors", "verifier.errors", "syncsvc.openapi", "verifier.openapi")
# The table of `syncsvc.resuming` that lists kinds.
LIST = "_KINDS"


@dataclass(frozen=True)
class Table:
    """The error table of one service, and the packages whose kinds of errors it must contain."""

    kinds: tuple[ErrorKind, ...]
    packages: tuple[str, ...]


TABLES = {
    "syncsvc": Table(syncsvc.errors.ALL, ("syncsvc", "verifier.runtime", "verifier.cluster")),
    "verifier": Table(verifier.errors.ALL, ("verifier",)),
}
BOTH = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)


def modules() -> Iterator[ModuleType]:
    """Import and yield every module of the packages syncsvc and verifier, except the sandbox and `__main__` modules."""
    for package in (syncsvc, verifier):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "sandbox" not in found.name and "__main__" not in found.name:
                yield importlib.import_module(found.name)


def modules_of(table: Table) -> list[ModuleType]:
    prefixes = tuple(f"{package}." for package in table.packages)
    return [module for module in modules() if module.__name__.startswith(prefixes)]


def kinds_of(module: ModuleType) -> set[ErrorKind]:
    return {value for value in vars(module).values() if isinstance(value, ErrorKind)}


@cache
def source_of(module: ModuleType) -> ast.Module:
    assert module.__file__ is not None
    with open(module.__file__) as file:
        return ast.parse(file.read())


@BOTH
def test_every_kind_is_in_the_table(table: Table) -> None:
    found = {kind for module in modules_of(table) for kind in kinds_of(module)}
    assert found == set(table.kinds)


def test_kinds_are_made_at_the_top_of_modules_only() -> None:
    for module in modules():
        tree = source_of(module)
        made = [each for each in ast.walk(tree) if _makes_a_kind(each)]
        at_top = [each for each in tree.body if isinstance(each, ast.Assign)]
        assert len(made) == sum(_makes_a_kind(each.value) for each in at_top)


def _makes_a_kind(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return "ErrorKind" in (getattr(node.func, "id", ""), getattr(node.func, "attr", ""))


@BOTH
def test_every_kind_is_used_somewhere(table: Table) -> None:
    names = {id(kind): name for module in modules_of(table) for name, kind in vars(module).items()}
    used: set[str] = set()
    for module in modules_of(table):
        if module.__name__ not in LISTS:
            used |= {*_names_loaded(source_of(module))}
    unused = [kind.name for kind in table.kinds if names[id(kind)] not in used]
    assert unused == []


def _names_loaded(tree: ast.Module) -> Iterator[str]:
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == LIST:
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute):
                yield node.attr
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield node.id


@BOTH
def test_names_are_different(table: Table) -> None:
    names = [kind.name for kind in table.kinds]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    "kind", [*syncsvc.errors.ALL, *verifier.errors.ALL], ids=lambda kind: str(kind.name)
)
def test_a_kind_is_complete(kind: ErrorKind) -> None:
    assert kind.name.isidentifier() and kind.name[0].isupper()
    assert kind.status in (400, 401, 403, 404, 405, 409, 413, 500, 503)
    assert kind.meaning.endswith(".") and kind.remedy.endswith(".")


@pytest.mark.parametrize(
    "kind", [*syncsvc.errors.ALL, *verifier.errors.ALL], ids=lambda kind: str(kind.name)
)
def test_a_remedy_says_nothing_twice(kind: ErrorKind) -> None:
    """A remedy of the foundation and the one that a product appends must not have a sentence in common."""
    beginnings = [sentence[:40] for sentence in kind.remedy.split(". ")]
    assert sorted(beginnings) == sorted(set(beginnings))


@BOTH
def test_every_kind_is_documented(table: Table) -> None:
    text = as_rst(table.kinds)
    for kind in table.kinds:
        assert f"``{kind.name}`` ({kind.status})\n    {kind.meaning} {kind.remedy}\n" in text


def test_a_remedy_names_only_its_own_product() -> None:
    assert "--clean" not in as_rst(syncsvc.errors.ALL)
    assert "/resume" not in as_rst(verifier.errors.ALL)


def test_an_error_of_the_foundation_gets_the_remedy_of_the_table() -> None:
    error = OperationError(failures.CLUSTER_UNREACHABLE, "It is away.")
    told = in_words_of(syncsvc.errors.ALL, error)
    assert str(told) == f"It is away. {syncsvc.errors.CLUSTER_UNREACHABLE.remedy}" != str(error)


def test_an_error_with_its_own_text_is_unchanged() -> None:
    error = Violations([(failures.CLUSTER_UNREACHABLE, "It is away.")])
    assert in_words_of(syncsvc.errors.ALL, error) is error


@pytest.mark.parametrize(
    "kind", [syncsvc.errors.WRONG_CLUSTERS, syncsvc.errors.INCOMPATIBLE_METADATA]
)
def test_a_remedy_warns_of_dropping_metadata(kind: ErrorKind) -> None:
    assert "sync that is not COMMITTED, send POST /api/v1/reset" in kind.remedy
    assert "Do not drop the metadata database of such a sync" in kind.remedy
