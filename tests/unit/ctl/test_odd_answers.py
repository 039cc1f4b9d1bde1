"""For any JSON answer of a daemon, `syncctl` must end with a message and a documented exit status, not a traceback.

Texts of the daemon and names of clusters must not control the terminal. A commit or a reset must not be confirmed
without the name of the destination.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import chain
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from syncsvc.ctl.cli import syncctl
from syncsvc.ctl.exits import Exit
from tests.support.stub_api import StubApi
from tests.unit.ctl.progress import (
    CHECKING,
    COMMITTABLE,
    COMMITTED,
    COPYING,
    DIFFERENT,
    FAILED,
    IDLE,
    answer,
)
from tests.unit.ctl.test_commands import (
    DEFINITION,
    DOCUMENT,
    LIMITS,
    NAMESPACE,
    PREFLIGHT,
    SUMMARY,
    VIOLATION,
    described,
)

HOSTILE = ["\x1b]0;x\x07", "\x9b2J", "\r", "\n", "\u2028", "\u202e", "\x7f", "\ud800"]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([*HOSTILE, 10**400, -1, "cluster1", "RUNNING", 1e308])
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=5) | st.sampled_from(HOSTILE), inner, max_size=3),
    max_leaves=8,
)

STEP = {"text": "Reset it.", "command": "reset", "body": {}}
VALID: dict[str, list[dict[str, Any]]] = {
    "progress": [
        *map(answer, (IDLE, COPYING, COMMITTABLE, COMMITTED, FAILED, CHECKING, DIFFERENT)),
        answer({**COPYING, "role": "standby", "lease": {"host": "a", "address": "b"}}),
        answer({**COPYING, "desiredState": "committed"}),
    ],
    # For commands of the verifier, which would end at once if the answer were the progress of a sync.
    "verifier progress": [*map(answer, (CHECKING, DIFFERENT))],
    "namespaces": [{"namespaces": [NAMESPACE], "next": None}],
    "limits": [LIMITS],
    "preflight": [PREFLIGHT, {**PREFLIGHT, "violations": [VIOLATION]}],
    "repair": [
        {"documents": 1, "definitions": 0, "repairs": [{"difference": "a", "action": each}]}
        for each in ("b", "none: b")
    ],
    "reset": [
        {name: ["a"] for name in ("collections", "views", "kept", "unblocked", "balancersStarted")}
    ],
    "mismatches": [DOCUMENT, DEFINITION],
    "nsMismatches": [DEFINITION],
    "docMismatches": [DOCUMENT],
    "summary": [SUMMARY],
    "openapi.json": [described("1.0")],
    "overview": [
        {"overview": {"next": None, "progress": COMMITTABLE, "commands": ["repair"]}},
        {"overview": {"next": STEP, "progress": FAILED, "commands": ["reset"]}},
        {
            "overview": {
                **{"next": STEP, "progress": COPYING, "commands": []},
                "instances": [{"name": "a"}],
            }
        },
    ],
    **{
        path: [{}]
        for path in (
            "start",
            "pause",
            "resume",
            "commit",
            "reverse",
            "report",
            "check",
            "writesOff",
        )
    },
}
# Commands, each with the names in VALID of the endpoints that it may read.
COMMANDS: dict[str, tuple[str, ...]] = {
    "doctor": ("progress", "openapi.json", "preflight"),
    "preflight": ("preflight", "progress", "overview"),
    "start": ("start", "overview"),
    "status": ("progress", "overview"),
    "watch --timeout 0": ("progress", "overview"),
    "namespaces": ("namespaces",),
    "limit": ("limits",),
    "limit --events 5": ("limits",),
    "pause": ("pause", "progress", "overview"),
    "resume": ("resume", "progress", "overview"),
    "mismatches": ("mismatches", "overview"),
    "mismatches --repaired": ("mismatches", "progress", "overview"),
    "repair": ("repair", "overview"),
    "repair --dry-run": ("repair", "progress", "overview"),
    "commit": ("progress", "overview", "commit"),
    "commit --dry-run": ("progress", "overview"),
    "commit --wait --timeout 0": ("progress", "overview", "commit"),
    "commit --yes": ("progress", "overview", "commit"),
    "reverse": ("reverse", "overview"),
    "reset": ("progress", "overview", "reset"),
    "reset --dry-run": ("progress", "reset"),
    "report --json": ("report",),
    "verifier status": ("verifier progress",),
    "verifier check": ("check",),
    "verifier writes-off": ("writesOff",),
    "verifier summary": ("summary",),
    "verifier mismatches": ("verifier progress", "nsMismatches", "docMismatches"),
    "verifier watch --timeout 0": ("verifier progress",),
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of a JSON value, and the path of each value nested in it.

    A path is a tuple of field names and array indexes. `path` is the path of `value` itself.
    """
    yield path
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        yield from chain.from_iterable(places(each, (*path, name)) for name, each in inner)


def replaced(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """Return a copy of the JSON value `value` in which `other` replaces the value at `path`."""
    if not path:
        return other
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], other)
    return copy


def endpoint(name: str) -> str:
    """Return the endpoint for a name in VALID: the name without the process name with which it may begin."""
    return name.rpartition(" ")[2]


@st.composite
def answers(draw: st.DrawFn, names: tuple[str, ...]) -> dict[str, str]:
    """Draw the texts of JSON answers for these names in VALID, by endpoint.

    An odd answer is a valid one in which random JSON replaces one value or the whole answer. If there are several
    answers, each may also be valid, because a command may end at the first odd one.
    """
    found = {}
    for name in names:
        value = {**draw(st.sampled_from(VALID[name])), "success": True}
        if len(names) == 1 or draw(st.booleans()):
            place = draw(st.sampled_from([*places(value)]))
            value = replaced(value, place, draw(JSON))
        found[endpoint(name)] = as_text(value)
    return found


def as_text(value: Any) -> str:
    """Return the value as JSON with few escapes. Lone surrogates, which UTF-8 cannot encode, become question marks."""
    return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()


class Terminal(StringIO):
    """A text file that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def call(
    patch: pytest.MonkeyPatch, arguments: Sequence[str], terminal: bool, typed: str = "\n"
) -> tuple[int, str]:
    """Run `syncctl` in this process, and return its exit status and all of its output.

    `typed` is its standard input. If `terminal` is true, its input and output claim to be a terminal.
    """
    kind = Terminal if terminal else StringIO
    output = kind()
    with patch.context() as each:
        each.setattr(sys, "stdin", kind(typed))
        each.setattr(sys, "stdout", output)
        each.setattr(sys, "stderr", output)
        with pytest.raises(SystemExit) as ended:
            syncctl.main(arguments, prog_name="syncctl")
    return int(ended.value.code or 0), output.getvalue()


# The escape sequences of the live display: colours and movements of the cursor.
_OF_RICH = re.compile(r"\x1b\[[\d;?]*[ABGHKhlm]|\r")


def controls(text: str) -> set[str]:
    """Return the characters in the text, except newlines, that could control a terminal."""
    unsafe = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return {each for each in text if unicodedata.category(each) in unsafe and each != "\n"}


@pytest.mark.parametrize("command", COMMANDS)
@given(data=st.data(), terminal=st.booleans(), as_json=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
def test_an_odd_answer_is_named(
    monkeypatch: pytest.MonkeyPatch,
    api: StubApi,
    command: str,
    data: st.DataObject,
    terminal: bool,
    as_json: bool,
) -> None:
    names = COMMANDS[command]
    api.forget()
    for path, text in data.draw(answers(names)).items():
        api.answer(path, text)
    more = ["--json"] if as_json else []
    urls = ["--url", api.url, "--verifier-url", api.url]
    status, output = call(monkeypatch, [*urls, *command.split(), *more], terminal)
    read = {each.path.partition("?")[0].rpartition("/")[2] for each in api.requests}
    never_odd = {*map(endpoint, VALID)} - {*map(endpoint, names)}
    assert not read & never_odd, "a command reads an answer that is never odd"
    assert status in [*Exit]
    assert not controls(_OF_RICH.sub("", output) if terminal else output)
    assert output or as_json


@pytest.mark.parametrize("command", [["status"], ["mismatches"], ["verifier", "summary"]])
def test_deeply_nested_json_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, api: StubApi, command: list[str]
) -> None:
    deep = 100_000 * '{"progress": '
    for path in ("progress", "mismatches", "summary"):
        api.answer(path, deep)
    urls = ["--url", api.url, "--verifier-url", api.url]
    status, output = call(monkeypatch, [*urls, *command], terminal=False)
    assert status == Exit.UNREACHABLE
    assert "UnexpectedAnswer" in output


def test_a_missing_field_is_named(monkeypatch: pytest.MonkeyPatch, api: StubApi) -> None:
    api.answer("progress", answer({"state": "RUNNING"}))
    status, output = call(monkeypatch, ["--url", api.url, "status"], terminal=False)
    assert status == Exit.UNREACHABLE
    assert output.startswith(
        f"UnexpectedAnswer: the answer of {api.url} cannot be read (KeyError: "
    )


def test_the_name_of_an_error_does_not_control_the_terminal(
    monkeypatch: pytest.MonkeyPatch, api: StubApi
) -> None:
    refusal = {"error": "\x1b]0;owned\x07", "errorDescription": "no\nNext: rm -r \x9b2J"}
    api.answer("pause", refusal, status=409)
    status, output = call(monkeypatch, ["--url", api.url, "pause"], terminal=True)
    shown = _OF_RICH.sub("", output)
    assert (status, controls(shown)) == (Exit.FAILED, set())
    assert shown == "\\x1b]0;owned\\x07: no\n  Next: rm -r \\x9b2J\n"


@pytest.mark.parametrize("name", ["", " ", ": b:27017", "\x1b[2J", 5])
@pytest.mark.parametrize("command", ["commit", "reset"])
def test_enter_confirms_nothing(
    monkeypatch: pytest.MonkeyPatch, api: StubApi, command: str, name: Any
) -> None:
    mapping = {**COMMITTABLE["directionMapping"], "Destination": name}
    api.answer("progress", answer({**COMMITTABLE, "directionMapping": mapping}))
    api.answer(command, {"success": True})
    status, output = call(monkeypatch, ["--url", api.url, command], terminal=True)
    assert status != Exit.OK and not controls(_OF_RICH.sub("", output))
    assert api.bodies(command) == []


def test_the_name_of_the_destination_confirms(
    monkeypatch: pytest.MonkeyPatch, api: StubApi
) -> None:
    api.answer("progress", answer(COMMITTABLE))
    api.answer("commit", {"success": True})
    urls = ["--url", api.url]
    assert call(monkeypatch, [*urls, "commit"], True, typed="cluster\n")[0] == Exit.FAILED
    assert api.bodies("commit") == []
    assert call(monkeypatch, [*urls, "commit"], True, typed="cluster1\n")[0] == Exit.OK
    assert api.bodies("commit") == [{}]


def test_an_empty_name_confirms_no_reset(monkeypatch: pytest.MonkeyPatch, api: StubApi) -> None:
    """If `--confirm` is empty, as from an unset variable, `reset` must send an empty confirmation or no request."""
    api.answer("progress", answer(COMMITTABLE))
    call(monkeypatch, ["--url", api.url, "reset", "--confirm", ""], terminal=False)
    assert api.bodies("reset") in ([], [{"confirm": ""}])


def test_a_list_that_repeats_itself_ends(monkeypatch: pytest.MonkeyPatch, api: StubApi) -> None:
    api.answer("namespaces", {"namespaces": [NAMESPACE], "next": "a.b"})
    status, output = call(monkeypatch, ["--url", api.url, "namespaces"], terminal=False)
    assert (status, "repeats itself" in output) == (Exit.UNREACHABLE, True)
