"""No start request that the documentation shows as an example is refused by the rules that need no cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from syncsvc.options import CLUSTERS
from syncsvc.preflight.rules import name_violations, option_violations
from syncsvc.request_file import DEFAULT_START
from syncsvc.schemas import StartSchema
from tests.support.pages import ROOT
from tests.unit.preflight.values import texts

TEXTS = (
    ROOT / "README.rst",
    *sorted(ROOT.glob("docs/**/*.rst")),
    *sorted(ROOT.glob("packaging/**/start.yaml")),
)
# A start request in YAML: from the field `source` on, all lines that are indented like it, or more.
_YAML = re.compile(r"^( *)source: cluster\d\n(?:\1\S[^\n]*\n|\1 +[^\n]+\n)*", re.M)


def examples(text: str) -> Iterator[dict[str, Any]]:
    """Yield the bodies of start requests in a text: JSON objects with only fields of a start, and YAML (see _YAML).

    If a JSON object lacks the source or the destination, the one of DEFAULT_START is added.
    """
    decoder, place = json.JSONDecoder(), 0
    while (place := text.find("{", place)) >= 0:
        try:
            found, place = decoder.raw_decode(text, place)
        except ValueError:
            place += 1
            continue
        if found and found.keys() <= StartSchema().fields.keys():
            yield {**DEFAULT_START, **found}
    for found in _YAML.finditer(text):
        yield yaml.safe_load(dedent(found[0]))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_example_is_refused(path: Path) -> None:
    for body in examples(path.read_text()):
        options = StartSchema().load(body)
        violations = [
            *name_violations(options, dict.fromkeys(CLUSTERS)),
            *option_violations(options),
        ]
        assert not violations, (body, texts(violations))


@pytest.mark.parametrize(
    "page, count",
    [
        ("docs/howto/declare.rst", 1),
        ("docs/howto/filter-documents.rst", 1),
        ("docs/howto/reverse.rst", 2),
        ("docs/howto/sharding.rst", 1),
        ("docs/reference/options.rst", 1),
        ("docs/reference/syncctl.rst", 1),
    ],
)
def test_the_examples_of_a_page_are_found(page: str, count: int) -> None:
    assert len([*examples((ROOT / page).read_text())]) >= count


def test_an_example_that_would_be_refused_is_found() -> None:
    (body,) = examples(
        "Write::\n\n    source: cluster0\n    destination: cluster1\n    reversible: true\n\nThen"
    )
    (violation,) = option_violations(StartSchema().load(body))
    assert violation[0].name == "ReversibleNeedsWriteBlocking"
