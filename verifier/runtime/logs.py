"""Writes the log as JSON lines, each with `time`, `level`, `message`, `thread` and the `extra` fields of the log call.

If the log goes to a terminal, its lines are text for people instead. Credentials are redacted.

Times have microseconds, because log tools for mongosync read the first 26 characters of a time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from pythonjsonlogger.json import JsonFormatter

from verifier.runtime import waits
from verifier.runtime.files import open_private
from verifier.runtime.quantities import visible

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "PANIC")
# Levels that are accepted for compatibility with other programs, and the levels that this program uses instead.
_NEAREST = {"TRACE": "DEBUG", "PANIC": "FATAL"}

# The logger of the audit log. If there is a log file, the audit log has a separate file.
AUDIT_LOGGER = "audit"

_log = logging.getLogger(__name__)

_UNWRITABLE = (
    "The process continues, but lines may be missing in the file: "
    "free space on its disk, or correct its folder."
)

# A new process continues a log file that is smaller than this, in bytes.
_SMALL = 1_000_000

# Matches everything up to the last "@" before the next connection string: a password that is not percent-encoded may
# contain any character, and hiding too much text is better than hiding too little. The options in the second pattern
# may contain secrets.
_CREDENTIALS = re.compile(
    r"(mongodb(?:\+srv)?://)(?:(?!mongodb(?:\+srv)?://).)*@", re.IGNORECASE | re.DOTALL
)
_SECRET_OPTIONS = re.compile(
    r"((?:tlsCertificateKeyFilePassword|authMechanismProperties|proxyPassword)=)[^&]*",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """Return the text with the credentials of all connection strings redacted."""
    # Redact the options first: a secret in an option may contain an "@".
    return _CREDENTIALS.sub(r"\1<redacted>@", _SECRET_OPTIONS.sub(r"\1<redacted>", text))


def redacted(value: Any) -> Any:
    """Return a value for JSON in which the credentials in all strings are redacted, at any depth.

    Sets and tuples become lists. Values that JSON cannot represent become strings.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {redact(str(name)): redacted(below) for name, below in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redacted(below) for below in value]
    return redact(str(value))


@dataclass(frozen=True)
class Style:
    """The log conventions of one program.

    `levels` maps Python's names of log levels to the names that the program writes. `fields` are added to every line.
    """

    levels: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str | int] = field(default_factory=dict)


class RedactingJsonFormatter(JsonFormatter):
    """A JSON formatter that redacts the credentials in all strings of a line, before the line is encoded as JSON."""

    levels: Mapping[str, str] = {}

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        level = log_data["level"]
        renamed = {**log_data, "level": self.levels.get(level, level)}
        return {name: redacted(value) for name, value in renamed.items()}

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")


class TerminalFormatter(RedactingJsonFormatter):
    """A formatter for people at a terminal, with lines such as `19:44:39Z info  Serving. port: 27182`."""

    def jsonify_log_record(self, log_data: dict[str, Any]) -> str:
        # Leave out the fields that every line contains.
        common = {"thread", *self.static_fields}
        fields = {name: value for name, value in log_data.items() if name not in common}
        time, level = str(fields.pop("time"))[11:19], str(fields.pop("level")).lower()
        message, trace = str(fields.pop("message")), str(fields.pop("trace", ""))
        shown = [
            f"{name}: {_as_text(value)}" for name, value in fields.items() if value is not None
        ]
        first = f"{time}Z {level:5} {visible(message)} {', '.join(shown)}".rstrip()
        return "\n".join([first, *map(visible, trace.splitlines())])


def _as_text(value: Any) -> str:
    return visible(value) if isinstance(value, str) else json.dumps(value)


def is_at_terminal() -> bool:
    """Return whether the log goes to a terminal."""
    return any(
        isinstance(each.formatter, TerminalFormatter) for each in logging.getLogger().handlers
    )


def _formatter(style: Style, kind: type[RedactingJsonFormatter]) -> logging.Formatter:
    formatter = kind(
        "{asctime}{levelname}{message}{threadName}",
        style="{",
        rename_fields={
            "asctime": "time",
            "levelname": "level",
            "threadName": "thread",
            "exc_info": "trace",
        },
        static_fields=dict(style.fields),
    )
    formatter.levels = style.levels
    return formatter


class LogFile(logging.FileHandler):
    """A log file with rotation: the old file is renamed, with the current time in its name, and a new file is started.

    Rotation happens when the process starts, unless the old file is small and ends with a complete line, and before the
    first line after a call of `request_rotation`. If the old file cannot be renamed, the constructor raises OSError; a
    later rotation continues the file.

    While the file cannot be written, for example on a full disk, the handler reports this once on stderr, and shows it
    as a long wait. The first line that is written afterwards is followed by a warning about the missing lines.
    """

    def __init__(self, path: Path) -> None:
        if not _may_be_continued(path):
            _move_away(path)
        super().__init__(path)
        self._rotation_requested = False
        # The number of lines that could not be written since the last one that could, and the wait that shows this.
        self._unwritten = 0
        self._wait: waits.Wait | None = None

    def request_rotation(self) -> None:
        """Request a rotation before the next line.

        Safe in a signal handler: it only sets a flag, because the signal may interrupt the writing of a line.
        """
        self._rotation_requested = True

    def emit(self, record: logging.LogRecord) -> None:
        if self._rotation_requested:
            self._rotation_requested = False
            self._rotate()
        unwritten = self._unwritten
        try:
            super().emit(record)
        except OSError:
            # The file cannot be opened; the next line tries again.
            self.handleError(record)
        if unwritten and self._unwritten == unwritten:
            self._recover()

    def handleError(self, record: logging.LogRecord) -> None:
        """Handle the exception that a line has caused. Python's own method writes a traceback for every line."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._unwritten += 1
        if self._wait is None:
            what = f"The log file {self.baseFilename} cannot be written: {error.strerror or error}"
            self._wait = waits.begin(what, _UNWRITABLE)
            with contextlib.suppress(OSError):
                sys.stderr.write(f"{what}. {_UNWRITABLE}\n")

    def _recover(self) -> None:
        count, self._unwritten = self._unwritten, 0
        self._end_wait()
        _log.warning(
            "Lines may be missing in the log file in the field `file`: for a time, it could not be written.",
            extra={"file": self.baseFilename, "lines": count},
        )

    def _end_wait(self) -> None:
        if self._wait is not None:
            waits.end(self._wait)
            self._wait = None

    def close(self) -> None:
        self._end_wait()
        super().close()

    def _open(self) -> TextIOWrapper:
        """Open the log file. A new file gets mode 0600, because its lines hold names and queries."""
        return open(self.baseFilename, "a", encoding=self.encoding, opener=open_private)

    def _rotate(self) -> None:
        """Rename the file and close it, so that the next line opens a new file. Never raises OSError.

        If the file cannot be renamed, the next line continues it.
        """
        # If the old file cannot be renamed, continue it: a line in the wrong file is better than none.
        with contextlib.suppress(OSError):
            _move_away(Path(self.baseFilename))
        stream, self.stream = self.stream, None
        # On a full disk, closing fails if lines are still buffered.
        with contextlib.suppress(OSError):
            if stream is not None:
                stream.close()


def _may_be_continued(path: Path) -> bool:
    """Return whether a log file is so small that a new process should append to it, and ends with a complete line.

    If small files were renamed, too, a process that ends soon after each start would leave thousands of files.
    """
    with contextlib.suppress(OSError), path.open("r+b") as file:
        if 0 < file.seek(0, os.SEEK_END) < _SMALL:
            file.seek(-1, os.SEEK_END)
            return file.read() == b"\n"
    return False


def _move_away(path: Path) -> None:
    """Rename a log file: add the current UTC time to its name, as in name-2026-11-21T19-40-05.123.log.

    No-op if the file does not exist or is empty. Raises OSError.
    """
    if not path.exists() or not path.stat().st_size:
        return
    moment = datetime.now(UTC)
    while (moved := path.with_name(f"{path.stem}-{_stamp(moment)}{path.suffix}")).exists():
        moment += timedelta(milliseconds=1)
    path.rename(moved)


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H-%M-%S.") + f"{moment.microsecond // 1000:03}"


def rotate(number: int, frame: FrameType | None) -> None:
    """Handle a signal: request a rotation of all log files. No-op without log files."""
    for logger in (logging.getLogger(), logging.getLogger(AUDIT_LOGGER)):
        for handler in logger.handlers:
            if isinstance(handler, LogFile):
                handler.request_rotation()


def set_up_audit(path: Path | None, style: Style) -> None:
    """Write the audit log to the file `path`; if `path` is None, to the log of the process."""
    logger = logging.getLogger(AUDIT_LOGGER)
    logger.setLevel(logging.INFO)
    logger.propagate = path is None
    for former in list(logger.handlers):
        logger.removeHandler(former)
        former.close()
    if path is not None:
        handler = LogFile(path)
        handler.setFormatter(_formatter(style, RedactingJsonFormatter))
        logger.addHandler(handler)


@contextlib.contextmanager
def _naming_option() -> Iterator[None]:
    """Raise an OSError that names the option logPath in place of an OSError in the block."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"the log cannot be written to the folder of the option logPath: {error}. Name a folder in which this user "
            "may create files, on a disk that is not full."
        ) from error


@_naming_option()
def set_up(
    directory: Path | None,
    file_name: str,
    level: str,
    stream: TextIO | None = None,
    style: Style = Style(),
    audit_name: str = "audit.log",
) -> None:
    """Write the log of the process to the file `directory`/`file_name`; see `LogFile` for its rotation.

    `level` is one of `LEVELS`. The audit log goes to `directory`/`audit_name`, whatever the level. If `directory` is
    None, both logs go to `stream` (by default, standard output): as text at a terminal, otherwise as JSON. Only their
    owner can read the created directory and files. Raises OSError, which names the option, if the directory cannot be
    created or a file cannot be written.
    """
    handler: logging.Handler
    kind = RedactingJsonFormatter
    if directory is None:
        stream = stream or sys.stdout
        handler = logging.StreamHandler(stream)
        if stream.isatty():
            kind = TerminalFormatter
    else:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = LogFile(directory / file_name)
    handler.setFormatter(_formatter(style, kind))
    logging.basicConfig(handlers=[handler], level=_NEAREST.get(level, level), force=True)
    set_up_audit(directory and directory / audit_name, style)
    # At debug level, the lines of the driver and of the HTTP server would drown our own.
    for noisy in ("pymongo", "waitress"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # Warnings of urllib3 contain whole URLs, and the path of a webhook's URL is often a secret.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    if level in _NEAREST:
        nearest = _NEAREST[level]
        _log.info(
            "This program does not have the given log level; the nearest one is used.",
            extra={"given": level, "used": nearest},
        )
