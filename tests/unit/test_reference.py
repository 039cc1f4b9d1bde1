"""The generated parts of the documentation are up to date.

The pages also explain every state, every option of a start, and the log lines that are written every half minute.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from syncsvc.openapi import OPERATIONS
from syncsvc.reports.log_lines import lines
from syncsvc.schemas import StartSchema
from syncsvc.state import Phase, State, Trigger
from tests.support import reference
from tests.support.reference import DOCS, GENERATED, filled, pages
from tests.unit.reports.test_log_lines import BEFORE, running

REFERENCE = DOCS / "reference"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_is_up_to_date(page: Path) -> None:
    text = page.read_text()
    assert text == filled(text), "a generated part of the page is outdated: run make reference"


def test_every_generated_part_has_one_place() -> None:
    names = [name for page in pages() for name in reference.names(page.read_text())]
    assert sorted(names) == sorted(GENERATED)


def test_a_changed_part_is_written_again() -> None:
    page = ".. generated: states\n\nOld text.\n\n.. end of generated text\n\nMore.\n"
    assert "Old text." not in filled(page)
    assert "IDLE --start--> RUNNING" in filled(page)
    assert filled(page).endswith("\n.. end of generated text\n\nMore.\n")


def test_every_state_is_explained() -> None:
    text = (REFERENCE / "api.rst").read_text()
    for state in State:
        assert f"\n``{state.value}``\n" in text


def test_the_automatic_transitions_are_named() -> None:
    asked = {each.path.removeprefix("/api/v1/") for each in OPERATIONS if each.method == "post"}
    own = [each for each in Trigger if each.value not in asked]
    own.remove(Trigger.COPY_PRINCIPALS)
    *names, last = (f"``{each.value}``" for each in own)
    text = " ".join((REFERENCE / "api.rst").read_text().split())
    assert f"The transitions {', '.join(names)} and {last} occur automatically" in text


def test_users_of_mongosync_are_told_of_each_state_and_phase_that_it_does_not_have() -> None:
    theirs = {"INITIALIZING", "IDLE", "RUNNING", "PAUSED", "COMMITTING", "COMMITTED", "REVERSING"}
    theirs |= {"initializing collections and indexes", "collection copy"}
    theirs |= {"change event application", "waiting for commit to complete", "commit completed"}
    text = (DOCS / "howto" / "from-mongosync.rst").read_text()
    (same,) = re.findall(r"- The states, .*?\n(?=- )", text, re.DOTALL)
    ours = {each.value for each in (*State, *Phase)}
    assert [each for each in ours - theirs if f"``{each}``" not in " ".join(same.split())] == []


def test_every_option_of_a_start_is_explained() -> None:
    text = (REFERENCE / "options.rst").read_text()
    for name in StartSchema().fields:
        assert f"``{name}``" in text


def test_every_line_about_a_sync_is_explained() -> None:
    text = (REFERENCE / "log.rst").read_text()
    for phase in (Phase.COPYING, Phase.APPLYING):
        for line in lines(BEFORE, running(phase), {}):
            # The numbers in a message vary, so compare only the text before the first one.
            assert line.message.partition(" 0 ")[0] in text
            for field in line.fields:
                assert f"``{field}``" in text
