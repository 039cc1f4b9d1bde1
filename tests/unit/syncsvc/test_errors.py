"""The table of errors is whole: every kind that exists is in it, and every one in it is used."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import pytest

import syncsvc
import verifier
from syncsvc import errors
from verifier.runtime.errors import ErrorKind


def modules() -> Iterator[ModuleType]:
    """Every module of the product that a process of ours loads."""
    for package in (syncsvc, verifier):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "sandbox" not in found.name and "__main__" not in found.name:
                yield importlib.import_module(found.name)


def kinds_of(module: ModuleType) -> set[ErrorKind]:
    return {value for value in vars(module).values() if isinstance(value, ErrorKind)}


def source_of(module: ModuleType) -> ast.Module:
    assert module.__file__ is not None
    with open(module.__file__) as file:
        return ast.parse(file.read())


def test_every_kind_is_in_the_table() -> None:
    found = {kind for module in modules() for kind in kinds_of(module)}
    assert found == set(errors.ALL)


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


def test_every_kind_is_raised_somewhere() -> None:
    names = {id(kind): name for module in modules() for name, kind in vars(module).items()}
    used: set[str] = set()
    for module in modules():
        if module is not errors:
            used |= {*_names_loaded(source_of(module))}
    unused = [kind.name for kind in errors.ALL if names[id(kind)] not in used]
    assert unused == []


def _names_loaded(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id


def test_names_are_different() -> None:
    names = [kind.name for kind in errors.ALL]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("kind", errors.ALL, ids=lambda kind: kind.name)
def test_a_kind_is_complete(kind: ErrorKind) -> None:
    assert kind.name.isidentifier() and kind.name[0].isupper()
    assert kind.status in (400, 409, 500)
    assert kind.meaning.endswith(".") and kind.remedy.endswith(".")


def test_every_kind_is_documented() -> None:
    text = errors.as_rst()
    for kind in errors.ALL:
        assert f"``{kind.name}`` ({kind.status})\n    {kind.meaning} {kind.remedy}\n" in text
