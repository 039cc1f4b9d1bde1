"""Options are read from flags, environment, file and defaults, in this order; errors name the option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verifier.runtime.options import (
    Form,
    Option,
    as_rst,
    number,
    parse,
    refuse,
    unknown_variables,
)

TABLE = (
    Option("uri", "connection string", required=True, value="URI"),
    Option("bindAddress", "address", default="127.0.0.1", value="ADDRESS"),
    Option("port", "port", parse=int, default=1, value="PORT"),
    Option("level", "level", parse=str.upper, default="INFO", choices=("INFO", "DEBUG")),
    Option("logPath", "directory"),
    Option("clean", "begin anew", form=Form.FLAG),
    Option("only", "names", value="NAME", form=Form.LIST),
    Option("filter", "which", value="JSON", form=Form.JSON),
    Option("user", "name", aliases=("login",)),
    Option("workers", "threads", number(1, 64), 4),
)
URI = ["--uri", "mongodb://host"]
SECRET = "mongodb://user:S3cr3t@host"


def values(*arguments: str) -> dict[str, Any]:
    return parse("prog", "1.2", "A program.", TABLE, "PROG", arguments, {"old": "use new"})


def config(directory: Path, text: str) -> list[str]:
    path = directory / "config.yaml"
    path.write_text(text)
    return ["--config", str(path)]


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Read these arguments, which must be refused, and return the error message."""
    with pytest.raises(SystemExit) as raised:
        values(*arguments)
    assert raised.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_defaults_fill_what_is_not_given() -> None:
    assert values(*URI) == {
        "uri": "mongodb://host",
        "bindAddress": "127.0.0.1",
        "port": 1,
        "level": "INFO",
        "logPath": None,
        "clean": False,
        "only": [],
        "filter": None,
        "user": None,
        "workers": 4,
    }


def test_flag_goes_before_environment_before_file_before_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*URI]
    assert values(*arguments)["port"] == 1
    arguments += config(tmp_path, "port: 2")
    assert values(*arguments)["port"] == 2
    monkeypatch.setenv("PROG_PORT", "3")
    assert values(*arguments)["port"] == 3
    assert values(*arguments, "--port", "4")["port"] == 4


@pytest.mark.parametrize(
    "name, variable",
    [("port", "PROG_PORT"), ("bindAddress", "PROG_BIND_ADDRESS"), ("cluster0", "PROG_CLUSTER0")],
)
def test_environment_variables_are_named_after_options(name: str, variable: str) -> None:
    assert Option(name, "").variable("PROG") == variable


def test_a_required_option_may_come_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert values(*config(tmp_path, "uri: mongodb://file"))["uri"] == "mongodb://file"
    monkeypatch.setenv("PROG_URI", "mongodb://environment")
    assert values()["uri"] == "mongodb://environment"


@pytest.mark.parametrize(
    "text, name, value",
    [
        ("port: 7", "port", 7),
        ("port: '7'", "port", 7),
        ("level: debug", "level", "DEBUG"),
        ("logPath: /tmp/x", "logPath", "/tmp/x"),
        ("logPath: null", "logPath", None),
        ("bindAddress: null", "bindAddress", "127.0.0.1"),
        ("# nothing but this\nport: 7", "port", 7),
        ("clean: true", "clean", True),
        ("clean: yes", "clean", True),
        ("clean: false", "clean", False),
        ("only: a", "only", ["a"]),
        ("only: a,b", "only", ["a", "b"]),
        ("only: [a, b, 'c,d']", "only", ["a", "b", "c", "d"]),
        ("only: []", "only", []),
        ("only: null", "only", []),
        ("filter: '[{\"a\": 1}]'", "filter", '[{"a": 1}]'),
        ("filter: [{a: x, b: [c, d]}]", "filter", '[{"a": "x", "b": ["c", "d"]}]'),
        ("filter:\n- a: 010\n", "filter", '[{"a": "010"}]'),
        ("login: me", "user", "me"),
    ],
)
def test_a_file_holds_the_same_names(tmp_path: Path, text: str, name: str, value: Any) -> None:
    assert values(*URI, *config(tmp_path, text))[name] == value


@pytest.mark.parametrize(
    "arguments, given",
    [
        ([], []),
        (["--only", "a"], ["a"]),
        (["--only", "a,b", "--only", "c"], ["a", "b", "c"]),
        (["--only=a, b"], ["a", "b"]),
    ],
)
def test_a_list_is_repeated_or_separated_by_commas(arguments: list[str], given: list[str]) -> None:
    assert values(*URI, *arguments)["only"] == given


@pytest.mark.parametrize("alias", ["--user", "--login"])
def test_an_alias_works_like_the_name(
    alias: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*URI, *config(tmp_path, f"{alias.removeprefix('--')}: file")]
    assert values(*arguments)["user"] == "file"
    monkeypatch.setenv("PROG_USER", "environment")
    assert values(*arguments)["user"] == "environment"
    assert values(*arguments, alias, "flag")["user"] == "flag"


@pytest.mark.parametrize(
    "name, text, given",
    [
        ("clean", "true", True),
        ("clean", "0", False),
        ("only", "a,b", ["a", "b"]),
        ("filter", '[{"a": 1}]', '[{"a": 1}]'),
    ],
)
def test_the_environment_has_all_forms(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, given: object
) -> None:
    monkeypatch.setenv(f"PROG_{name.upper()}", text)
    assert values(*URI)[name] == given


def test_a_flag_that_is_false_in_the_environment_wins_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROG_CLEAN", "false")
    assert values(*URI, *config(tmp_path, "clean: true"))["clean"] is False


def test_the_config_file_option_has_an_alias(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("port: 2")
    assert values(*URI, "--configFile", str(tmp_path / "x.yaml"))["port"] == 2


def test_the_bounds_of_a_number_are_accepted() -> None:
    for bound in (1, 64):
        assert values(*URI, "--workers", str(bound))["workers"] == bound


def test_conflicting_settings_are_refused_the_same_way(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as raised:
        refuse("prog", f"--a goes with --b only, {SECRET}.")
    assert raised.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("prog: --a goes with") and message.endswith(". See prog --help.\n")
    assert "S3cr3t" not in message and ".." not in message


@pytest.mark.parametrize(
    "arguments, named",
    [
        ([], "--uri"),
        ([*URI, "--workers", "0"], "'0' is not a whole number from 1 to 64"),
        ([*URI, "--workers", "65"], "--workers"),
        ([*URI, "--workers", "4.0"], "'4.0' is not a whole number"),
        ([*URI, "--workers", "9" * 5000], "--workers"),
        ([*URI, "--clean=maybe"], "--clean: 'maybe' is neither true nor false"),
        ([*URI, "--port", "x"], "--port"),
        ([*URI, "--port"], "--port"),
        ([*URI, "--level", "loud"], "--level"),
        ([*URI, "--nope", "x"], "--nope"),
        ([*URI, "--por", "7"], "--por"),
        ([*URI, "stray"], "an argument that belongs to no option"),
        ([*URI, "-p", "1"], "unknown options: -p."),
        ([*URI, "--config", "/nowhere/x.yaml"], "/nowhere/x.yaml"),
        ([*URI, "--config", "/"], "/"),
    ],
)
def test_a_bad_flag_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    message = refusal(capsys, *arguments)
    assert named in message
    assert message.startswith("prog: ") and message.endswith("See prog --help.\n")


@pytest.mark.parametrize(
    "arguments, given",
    [
        ([], False),
        (["--clean"], True),
        (["--clean=true"], True),
        (["--clean", "false"], False),
        (["--clean", "--port", "2"], True),
    ],
)
def test_a_flag_may_have_a_value(arguments: list[str], given: bool) -> None:
    assert values(*URI, *arguments)["clean"] is given


def test_a_file_is_refused_for_all_reasons_at_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = "prot: 1\nold: 2\nnope: [a]\nport: x\nworkers: 99\nlevel: loud\nonly: {a: b}\nclean: maybe\n"
    assert refusal(capsys, *URI, *config(tmp_path, text)) == (
        f"prog: the config file {tmp_path}/config.yaml cannot be used: unknown options: prot "
        "(did you mean port?), old (use new), nope; port: invalid literal for int() with base 10: 'x'; workers: '99' "
        "is not a whole number from 1 to 64; level: 'loud' is not one of INFO, DEBUG; only: give one value, "
        "or a list of single values if the option accepts several; clean: 'maybe' is neither true nor false. "
        "See prog --help.\n"
    )


def test_unknown_flags_are_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    message = refusal(capsys, *URI, "--prot=1", "--old", "x", "--nope")
    assert message == (
        "prog: unknown options: --prot (did you mean --port?), --old (use new), --nope. See prog --help.\n"
    )


@pytest.mark.parametrize(
    "text, named",
    [
        ("nope: 1", "nope"),
        ("port: x", "port"),
        ("port: [1, 2]", "port"),
        ("port: {a: 1}", "port"),
        ("clean: maybe", "clean"),
        ("clean: [true]", "clean"),
        ("only: [[a]]", "only"),
        ("only: {a: b}", "only"),
        ("only: [{a: b}]", "only"),
        ("level: loud", "level"),
        ("uri: null", "uri"),
        ("port: 1\nport: 2", "the key port occurs more than once"),
        ("filter: [{a: 1, a: 2}]", "the key a occurs more than once"),
        ("user: a\nlogin: b", "user and login are the same option: remove all but one"),
        ("uri: *host", "line 1, column 6: put quotes around a value that begins with *, & or !"),
        (
            "port: 1\nuri: &host",
            "line 2, column 6: put quotes around a value that begins with *, & or !",
        ),
        ("uri: !host", "line 1, column 6: put quotes around a value that begins with *, & or !"),
        ("uri: !host x", "line 1, column 6: put quotes around a value that begins with *, & or !"),
        ("uri: !!host x", "line 1, column 6: put quotes around a value that begins with *, & or !"),
        (
            "only: [&a b, *a]",
            "line 1, column 8: put quotes around a value that begins with *, & or !",
        ),
        ("port: 1\n---\nport: 2", "expected a single document in the stream"),
        ("[]", "the content is not a mapping from options to values"),
        ("a: b: c", "config.yaml"),
        ("just text", "config.yaml"),
        ("- a list", "config.yaml"),
        ("\0", "config.yaml"),
    ],
)
def test_a_bad_file_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, named: str
) -> None:
    given = [] if named == "uri" else URI
    assert named in refusal(capsys, *given, *config(tmp_path, text))


@pytest.mark.parametrize("text", ["1: x", "true: x", "null: x"])
def test_a_key_that_is_no_text_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    refusal(capsys, *URI, *config(tmp_path, text))


@pytest.mark.parametrize("text", ["", "# a comment", "---", "{}", "port: "])
def test_a_file_without_values_gives_nothing(tmp_path: Path, text: str) -> None:
    assert values(*URI, *config(tmp_path, text)) == values(*URI)


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PROG_PORT", "PROG_ONLY", "PROG_CLEAN", "PROG_USER"):
        monkeypatch.setenv(name, "")
    assert values(*URI) == {**values(*URI), "port": 1, "only": [], "clean": False, "user": None}


def test_a_mapping_is_no_value(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "logPath" in refusal(capsys, *URI, *config(tmp_path, "logPath: {a: b}"))


def test_a_file_that_is_no_text_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_bytes(b"port: \xff\xfe")
    assert "config file" in refusal(capsys, *URI, "--config", str(tmp_path / "config.yaml"))


@pytest.mark.parametrize("name, value", [("PROG_PORT", "x"), ("PROG_LEVEL", "loud")])
def test_a_bad_variable_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    message = refusal(capsys, *URI)
    assert value.casefold() in message.casefold() and name.split("_")[1].lower() in message


@pytest.mark.parametrize(
    "given, unknown",
    [
        (["PROG_BINDADDRESS", "PROG_PORT", "PATH", "PROGRAM"], ["PROG_BINDADDRESS"]),
        (["PROG_USR", "PROG_CONFIG", "PROG_LOGIN"], ["PROG_CONFIG", "PROG_LOGIN", "PROG_USR"]),
        (["PROG_OTHER_PORT", "PROG_TESTED"], []),
        (["PROG_PORT_", "PROG_SERVICE_HOSTS"], ["PROG_PORT_", "PROG_SERVICE_HOSTS"]),
        (
            [
                *("PROG_SERVICE_HOST", "PROG_SERVICE_PORT", "PROG_SERVICE_PORT_API"),
                *("PROG_PORT", "PROG_PORT_7_TCP", "PROG_PORT_7_TCP_ADDR"),
                *("PROG_API_SERVICE_HOST", "PROG_API_SERVICE_PORT", "PROG_API_PORT"),
                "PROG_APIS_PORT",
            ],
            ["PROG_APIS_PORT"],
        ),
    ],
)
def test_unknown_variables_are_found(given: list[str], unknown: list[str]) -> None:
    assert unknown_variables(TABLE, "PROG", given, ("PROG_OTHER_", "PROG_TESTED")) == unknown


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--nope", SECRET], [f"--nope={SECRET}"], [SECRET], ["--port", SECRET]),
        *(["--nope", "bob:S3cr3t@h"], ["--nope=https://x/S3cr3t"], ["bob:S3cr3t@h"]),
    ],
)
def test_a_refused_flag_shows_no_credentials(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert "S3cr3t" not in refusal(capsys, *URI, *arguments)


@pytest.mark.parametrize(
    "text",
    [
        f"nope: {SECRET}",
        "nope: https://x/S3cr3t",
        "destUri: bob:S3cr3t@h",
        "nope: [bob:S3cr3t@h]",
        f"port: {SECRET}",
        f"uri: [{SECRET}]",
        f"uri: {SECRET}: x",
        f'uri: "{SECRET}',
        "uri: *S3cr3t",
        "uri: !S3cr3t!x",
        "uri: !<S3cr3t",
        "uri: %S3cr3t",
        "uri: @S3cr3t",
        "uri: &S3cr3t x\nuser: &S3cr3t y\nlogin: *S3cr3tx",
    ],
)
def test_a_refused_file_shows_no_credentials(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    assert "S3cr3t" not in refusal(capsys, *URI, *config(tmp_path, text))


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        values("--version")
    assert raised.value.code == 0
    assert capsys.readouterr().out == "prog 1.2\n"


def test_help_names_every_option_with_variable_and_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as raised:
        values("--help")
    assert raised.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for option in TABLE:
        assert all(flag in shown for flag in option.flags)
        assert option.form is Form.FLAG or f"--{option.name} {option.value}" in shown
        assert f"env var: {option.variable('PROG')}" in shown
    assert "(default: 127.0.0.1)" in shown
    assert "http" not in shown and "YAML" in shown


def test_the_table_is_documented() -> None:
    table = (TABLE[1], Option("clean", "anew", form=Form.FLAG, aliases=("c",)))
    assert as_rst(table, "PROG") == (
        "``--bindAddress ADDRESS``, ``PROG_BIND_ADDRESS``\n"
        "    address (default: 127.0.0.1).\n"
        "``--clean``, ``--c``, ``PROG_CLEAN``\n"
        "    anew.\n"
        "``--config FILE``, ``--configFile FILE``\n"
        "    YAML configuration file, whose keys are the names of the options.\n"
    )
