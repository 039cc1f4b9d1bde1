"""Log lines must be JSON objects (at a terminal: text) without credentials, wherever a record has a connection string.

Also tests the modes and the rotation of the log files, and a full disk.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from verifier.runtime import logs, waits
from verifier.runtime.logs import redact

SECRET = "S3cr3t"


class Terminal(StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


log = logging.getLogger("test.logs")


@pytest.fixture(scope="module")
def own_handlers() -> Iterator[None]:
    """Restore the log handlers and the log level after the tests of this module, which replace them."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    logs.set_up_audit(None, logs.Style())


@pytest.fixture(scope="module")
def log_file(own_handlers: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("logs") / "made" / "here"
    logs.set_up(directory, "test.log", "INFO")
    return directory / "test.log"


@pytest.fixture(scope="module")
def formatter(log_file: Path) -> logging.Formatter:
    found = logging.getLogger().handlers[0].formatter
    assert found is not None
    return found


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Clear the umask during a test: a new file gets exactly the requested mode."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def last_line(path: Path) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(path.read_text().splitlines()[-1])
    return line


class TestLines:
    def test_a_line_holds_time_level_and_message(self, log_file: Path) -> None:
        log.warning("It happened.")
        line = last_line(log_file)
        assert (line["level"], line["message"], line["thread"]) == (
            "WARNING",
            "It happened.",
            "MainThread",
        )
        assert datetime.fromisoformat(line["time"]).utcoffset() == timedelta(0)

    def test_extra_fields_are_fields_of_the_line(self, log_file: Path) -> None:
        log.info("It happened.", extra={"count": 3, "names": ["a"]})
        line = last_line(log_file)
        assert (line["count"], line["names"]) == (3, ["a"])

    def test_arguments_are_put_into_the_message(self, log_file: Path) -> None:
        log.info("%s of %d", "one", 2)
        assert last_line(log_file)["message"] == "one of 2"

    def test_a_traceback_is_a_field(self, log_file: Path) -> None:
        try:
            raise ValueError("broken")
        except ValueError as error:
            log.error("It failed.", exc_info=error)
        trace = last_line(log_file)["trace"]
        assert trace.startswith("Traceback") and trace.endswith("ValueError: broken")

    def test_values_that_json_does_not_know_are_converted(self, log_file: Path) -> None:
        log.info("It happened.", extra={"path": Path("/x"), "data": b"\xff", "set": {1}})
        line = last_line(log_file)
        assert (line["path"], line["data"], line["set"]) == ("/x", r"b'\xff'", [1])

    def test_a_line_break_stays_within_the_line(self, log_file: Path) -> None:
        before = len(log_file.read_text().splitlines())
        log.info("one\ntwo\r\u2028three")
        assert len(log_file.read_text().splitlines()) == before + 1

    def test_lower_levels_are_left_out(self, log_file: Path) -> None:
        before = log_file.read_text()
        log.debug("unseen")
        assert log_file.read_text() == before

    @pytest.mark.parametrize("name", ["pymongo.command", "waitress"])
    def test_libraries_log_only_warnings(self, log_file: Path, name: str) -> None:
        assert not logging.getLogger(name).isEnabledFor(logging.INFO)
        assert logging.getLogger(name).isEnabledFor(logging.WARNING)


@pytest.mark.usefixtures("own_handlers")
class TestSetUp:
    @pytest.mark.parametrize("level", logs.LEVELS)
    def test_every_level_of_the_options_is_known(self, tmp_path: Path, level: str) -> None:
        logs.set_up(tmp_path, "test.log", level)
        nearest = {"TRACE": "DEBUG", "PANIC": "FATAL"}.get(level, level)
        assert logging.getLogger().level == getattr(logging, nearest)

    def test_an_unknown_level_is_replaced_by_the_nearest(self, tmp_path: Path) -> None:
        logs.set_up(tmp_path, "test.log", "TRACE")
        last = last_line(tmp_path / "test.log")
        assert (last["given"], last["used"]) == ("TRACE", "DEBUG")

    def test_at_a_terminal_lines_are_text(self) -> None:
        terminal = Terminal()
        logs.set_up(None, "test.log", "INFO", terminal, logs.Style(fields={"pid": 7}))
        log.info("Serving.", extra={"port": 1, "address": "h", "none": None, "list": ["a"]})
        assert logs.is_at_terminal()
        line = terminal.getvalue()
        assert re.fullmatch(
            r'\d\d:\d\d:\d\dZ info  Serving. port: 1, address: h, list: \["a"\]\n', line
        )

    def test_at_a_terminal_control_characters_are_escaped(self) -> None:
        terminal = Terminal()
        logs.set_up(None, "test.log", "INFO", terminal)
        log.info("a\x1b[2Jb", extra={"name_": "c\r\x9bd\u202e"})
        assert terminal.getvalue().endswith(r"a\x1b[2Jb name_: c\r\x9bd\u202e" + "\n")

    def test_at_a_terminal_no_credentials_are_shown(self) -> None:
        terminal = Terminal()
        logs.set_up(None, "test.log", "INFO", terminal)
        try:
            raise ValueError(f"mongodb://user:{SECRET}@host")
        except ValueError:
            log.exception(f"mongodb://user:{SECRET}@host")
        shown = terminal.getvalue()
        assert SECRET not in shown and "\nTraceback (most recent call last):\n" in shown

    def test_a_style_names_levels_and_adds_fields_to_every_line(self, tmp_path: Path) -> None:
        style = logs.Style({"WARNING": "warn"}, {"serverID": "5e0d", "pid": 7})
        logs.set_up(tmp_path, "test.log", "INFO", style=style)
        log.info("one")
        log.warning("two", extra={"count": 3})
        first, second = map(json.loads, (tmp_path / "test.log").read_text().splitlines())
        assert (first["level"], second["level"], second["count"]) == ("INFO", "warn", 3)
        assert {(each["serverID"], each["pid"]) for each in (first, second)} == {("5e0d", 7)}

    def test_times_can_be_read_by_their_first_26_characters(self, tmp_path: Path) -> None:
        logs.set_up(tmp_path, "test.log", "INFO")
        log.info("now")
        shown = last_line(tmp_path / "test.log")["time"]
        datetime.strptime(shown[:26], "%Y-%m-%dT%H:%M:%S.%f")

    def test_without_a_directory_lines_go_to_standard_output(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        logs.set_up(None, "test.log", "INFO")
        log.info("shown")
        assert json.loads(capsys.readouterr().out)["message"] == "shown"

    def test_a_new_log_can_be_read_by_its_owner_only(self, tmp_path: Path, no_umask: None) -> None:
        logs.set_up(tmp_path / "made" / "here", "test.log", "INFO")
        assert mode(tmp_path / "made" / "here") == 0o700
        for name in ("test.log", "audit.log"):
            assert mode(tmp_path / "made" / "here" / name) == 0o600

    def test_an_old_log_that_others_could_read_is_closed_to_them(self, tmp_path: Path) -> None:
        for name in ("test.log", "audit.log"):
            (tmp_path / name).touch()
            (tmp_path / name).chmod(0o644)
        logs.set_up(tmp_path, "test.log", "INFO")
        assert {mode(each) for each in tmp_path.iterdir()} == {0o600}

    def test_the_audit_log_is_a_separate_file_whatever_the_level(self, tmp_path: Path) -> None:
        logs.set_up(tmp_path, "test.log", "ERROR")
        logging.getLogger(logs.AUDIT_LOGGER).info("Answered command", extra={"caller": "otto"})
        logs.rotate(0, None)
        logging.getLogger(logs.AUDIT_LOGGER).info("Received command")
        assert last_line(tmp_path / "audit.log")["message"] == "Received command"
        (old,) = tmp_path.glob("audit-*.log")
        assert last_line(old)["caller"] == "otto" and mode(old) == 0o600
        assert (tmp_path / "test.log").read_text() == ""

    def test_without_a_directory_the_audit_log_is_a_part_of_the_log(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        logs.set_up(None, "test.log", "ERROR")
        logging.getLogger(logs.AUDIT_LOGGER).info("Received command")
        assert json.loads(capsys.readouterr().out)["message"] == "Received command"

    def test_a_directory_that_exists_keeps_its_mode(self, tmp_path: Path, no_umask: None) -> None:
        tmp_path.chmod(0o755)
        logs.set_up(tmp_path, "test.log", "INFO")
        assert mode(tmp_path) == 0o755

    def test_a_directory_that_cannot_be_made_is_an_os_error(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(OSError, match="option logPath.*File exists"):
            logs.set_up(tmp_path / "file", "test.log", "INFO")


def line_with(formatter: logging.Formatter, text: str, place: str) -> str:
    """Return the log line of a record that contains the text in the given place.

    `place` is "message", "extra", "object in extra" or "nested extra"; any other value stands for the traceback.
    """
    message, error = "message", None
    extra: dict[str, Any] = {}
    if place == "message":
        message = text
    elif place == "extra":
        extra = {"uri": text}
    elif place == "object in extra":
        extra = {"error": ValueError(text), "by name": {text: 1}}
    elif place == "nested extra":
        extra = {"clusters": {"cluster0": [text]}}
    else:
        error = ValueError(text)
    record = log.makeRecord(log.name, logging.INFO, "file", 1, message, (), None, extra=extra)
    if error is not None:
        record.exc_info = (ValueError, error, None)
    return formatter.format(record)


PLACES = ["message", "extra", "nested extra", "object in extra", "error"]

# Characters that at least one parser accepts unescaped between ":" and "@" of a connection string.
ODD = "%!$&()*+,;=[]{}<>|^`~#?/.@:-_"
passwords = st.text(st.sampled_from("aZ0" + ODD), max_size=8)
# The driver also accepts passwords with these characters.
ODDER = "\"'\\ \täß漢\U0001f600"
odder_passwords = st.text(st.sampled_from("aZ0" + ODDER), max_size=6)

# Parts from which texts with several connection strings are built.
PIECES = [
    "mongodb://",
    "MONGODB+srv://",
    "u:p",
    "@",
    "/",
    "?",
    " ",
    "proxyPassword=",
    "&",
    "<",
    "'",
]


def uri(before: str, after: str) -> str:
    return f"mongodb://user:{before}{SECRET}{after}@host:27017/db?appName=x"


class TestRedaction:
    @pytest.mark.parametrize("place", PLACES)
    @given(before=passwords, after=passwords)
    def test_a_password_is_in_no_line(
        self, formatter: logging.Formatter, place: str, before: str, after: str
    ) -> None:
        line = line_with(formatter, f"failed: {uri(before, after)}", place)
        assert SECRET not in line
        assert json.loads(line)["thread"] == "MainThread"

    @pytest.mark.parametrize("place", PLACES)
    @settings(phases=[Phase.generate])
    @given(before=odder_passwords, after=odder_passwords)
    def test_an_odd_password_is_in_no_line(
        self, formatter: logging.Formatter, place: str, before: str, after: str
    ) -> None:
        line = line_with(formatter, uri(before, after), place)
        assert SECRET not in line
        assert json.loads(line)["thread"] == "MainThread"

    @settings(phases=[Phase.generate])
    @given(before=odder_passwords, after=odder_passwords)
    def test_an_odd_password_is_in_no_text(self, before: str, after: str) -> None:
        assert SECRET not in redact(f"unrecognized arguments: --x={uri(before, after)}")

    @pytest.mark.parametrize(
        "text, redacted",
        [
            ("mongodb://u:p@h/db", "mongodb://<redacted>@h/db"),
            ("mongodb+srv://u:p@h/db", "mongodb+srv://<redacted>@h/db"),
            ("MongoDB://u:p@h", "MongoDB://<redacted>@h"),
            ("mongodb://u@h", "mongodb://<redacted>@h"),
            ("mongodb://u:p@q@h", "mongodb://<redacted>@h"),
            ("a mongodb://u:p@h, b mongodb://v:q@i", None),
            ("mongodb://h/db?w=1", "mongodb://h/db?w=1"),
            ("nothing to hide: a@b", "nothing to hide: a@b"),
            ("", ""),
        ],
    )
    def test_only_credentials_are_redacted(self, text: str, redacted: str | None) -> None:
        expected = re.sub(r"\w:\w@", "<redacted>@", text) if redacted is None else redacted
        assert redact(text) == expected

    @pytest.mark.parametrize(
        "option", ["tlsCertificateKeyFilePassword", "AUTHMECHANISMPROPERTIES", "proxyPassword"]
    )
    def test_options_that_hold_secrets_are_redacted(self, option: str) -> None:
        text = f"mongodb://h/?w=majority&{option}={SECRET}&tls=true"
        assert redact(text) == f"mongodb://h/?w=majority&{option}=<redacted>&tls=true"

    @pytest.mark.parametrize("before", ["a@", "a b", "a'", 'a"', "a\t"])
    def test_options_that_hold_odd_secrets_are_redacted(self, before: str) -> None:
        option = f"tlsCertificateKeyFilePassword={before}{SECRET}"
        for rest in ("", "&tls=true", "@x&tls=true"):
            assert SECRET not in redact(f"mongodb://user:x@h/?{option}{rest}")

    @given(st.lists(st.sampled_from(PIECES)).map("".join))
    def test_redaction_is_idempotent(self, text: str) -> None:
        assert redact(redact(text)) == redact(text)

    @pytest.mark.parametrize("place", PLACES)
    @given(text=st.text())
    def test_a_line_is_json_whatever_was_redacted(
        self, formatter: logging.Formatter, place: str, text: str
    ) -> None:
        line = line_with(formatter, f"mongodb://{text}@host {text}", place)
        assert "\n" not in line
        json.loads(line)

    def test_a_traceback_through_a_connection_string_is_redacted(
        self, formatter: logging.Formatter
    ) -> None:
        try:
            raise ValueError(f"cannot use {uri('', '')}") from OSError(uri("", ""))
        except ValueError:
            record = log.makeRecord(log.name, 20, "file", 1, "m", (), sys.exc_info())
        line = formatter.format(record)
        assert SECRET not in line and line.count("<redacted>") == 2


class TestRotation:
    OLD = "of an earlier process\n" * 50_000

    @pytest.fixture
    def folder(self, own_handlers: None, tmp_path: Path) -> Path:
        (tmp_path / "test.log").write_text(self.OLD)
        logs.set_up(tmp_path, "test.log", "INFO")
        return tmp_path

    def files(self, folder: Path) -> list[str]:
        return sorted(each.name for each in folder.glob("test*"))

    def test_the_log_of_an_earlier_process_is_renamed(self, folder: Path) -> None:
        log.info("new")
        old, new = self.files(folder)
        assert re.fullmatch(r"test-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}\.log", old)
        assert (folder / old).read_text() == self.OLD
        assert (new, last_line(folder / new)["message"]) == ("test.log", "new")

    def test_processes_that_end_soon_leave_one_file(
        self, own_handlers: None, tmp_path: Path
    ) -> None:
        for number in range(20):
            logs.set_up(tmp_path, "test.log", "INFO")
            log.info("start %d", number)
        assert self.files(tmp_path) == ["test.log"]
        messages = [json.loads(line)["message"] for line in (tmp_path / "test.log").open()]
        assert messages == [f"start {number}" for number in range(20)]

    def test_an_incomplete_line_is_not_continued(self, own_handlers: None, tmp_path: Path) -> None:
        (tmp_path / "test.log").write_text('{"message": "cut off')
        logs.set_up(tmp_path, "test.log", "INFO")
        log.info("new")
        old, new = self.files(tmp_path)
        assert (tmp_path / old).read_text() == '{"message": "cut off'
        assert last_line(tmp_path / new)["message"] == "new"

    def test_a_signal_begins_a_new_file_with_the_next_line(self, folder: Path) -> None:
        log.info("one")
        before = self.files(folder)
        logs.rotate(signal.SIGUSR1, None)
        assert self.files(folder) == before
        log.info("two")
        log.info("three")
        assert len(self.files(folder)) == len(before) + 1
        messages = [json.loads(line)["message"] for line in (folder / "test.log").open()]
        assert messages == ["two", "three"]

    def test_a_new_file_can_be_read_by_its_owner_only(self, no_umask: None, folder: Path) -> None:
        log.info("one")
        logs.rotate(signal.SIGUSR1, None)
        log.info("two")
        *_, rotated, current = [folder / name for name in self.files(folder)]
        assert [mode(rotated), mode(current)] == [0o600, 0o600]

    def test_files_rotated_at_the_same_moment_have_different_names(self, folder: Path) -> None:
        for number in range(20):
            log.info("line %d", number)
            logs.rotate(signal.SIGUSR1, None)
        assert len(self.files(folder)) == 21

    def test_a_file_that_cannot_be_renamed_is_still_used(self, folder: Path) -> None:
        log.info("one")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logs, "_move_away", refuse)
            logs.rotate(signal.SIGUSR1, None)
            log.info("two")
        messages = [json.loads(line)["message"] for line in (folder / "test.log").open()]
        assert messages == ["one", "two"]

    def test_a_rotation_on_a_full_disk_does_not_fail(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        handler = file_handler()
        assert handler.stream is not None
        handler.stream.close()
        handler.stream = open("/dev/full", "a")
        log.info("lost")
        logs.rotate(signal.SIGUSR1, None)
        log.info("two")
        log.info("three")
        lines = [json.loads(line) for line in (folder / "test.log").open()]
        assert [each["message"] for each in lines if "file" not in each] == ["two", "three"]
        assert "No space left on device" in capsys.readouterr().err

    def test_a_full_disk_is_shown_until_lines_can_be_written(
        self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(waits, "LONG", 0.0)
        handler = file_handler()
        stream = handler.stream
        full = handler.stream = open("/dev/full", "a")
        for number in range(3):
            log.info("lost %d", number)
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and "No space left on device. The process continues" in said
        [shown] = waits.long_waits()
        assert f"{folder / 'test.log'} cannot be written" in shown.text
        handler.stream = stream
        log.info("written")
        with suppress(OSError):
            full.close()
        assert waits.long_waits() == ()
        warned = last_line(folder / "test.log")
        assert (warned["lines"], warned["file"]) == (3, str(folder / "test.log"))

    def test_a_file_that_cannot_be_opened_is_tried_again(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        log.info("one")
        logs.rotate(signal.SIGUSR1, None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logs, "open_private", refuse)
            log.info("two")
        log.info("three")
        three, warned = map(json.loads, (folder / "test.log").open())
        assert (three["message"], warned["lines"]) == ("three", 1)
        assert "test.log cannot be written" in capsys.readouterr().err

    def test_a_rotation_without_a_log_file_does_nothing(self, own_handlers: None) -> None:
        logs.set_up(None, "test.log", "INFO")
        logs.rotate(signal.SIGUSR1, None)
        log.info("goes on")


def file_handler() -> logs.LogFile:
    """Return the handler that writes the log of the process to a file."""
    [found] = [each for each in logging.getLogger().handlers if isinstance(each, logs.LogFile)]
    return found


def refuse(path: Path, *flags: int) -> int:
    raise PermissionError(path)
