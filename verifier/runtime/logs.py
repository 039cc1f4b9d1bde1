"""JSON log lines, one object a line, with `time`, `level`, `message` and the fields of the call. No credentials."""

from __future__ import annotations

import logging
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

from pythonjsonlogger.json import JsonFormatter

LEVELS = ("DEBUG", "INFO", "WARN", "ERROR", "FATAL")

# A user part is everything up to the last "@" of an unbroken word, so that a password with a stray "@" or "/" in it
# goes as well. The named options are the ones that may hold a secret.
_CREDENTIALS = re.compile(r"(mongodb(?:\+srv)?://)[^\s\"'\\]*@", re.IGNORECASE)
_SECRET_OPTIONS = re.compile(
    r"((?:tlsCertificateKeyFilePassword|authMechanismProperties|proxyPassword)=)[^&\s\"'\\]*",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """The text without the credentials of the connection strings in it."""
    return _SECRET_OPTIONS.sub(r"\1<redacted>", _CREDENTIALS.sub(r"\1<redacted>@", text))


class RedactingJsonFormatter(JsonFormatter):
    """Redacts the finished line, so that no field, message or traceback can pass by it."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _formatter() -> logging.Formatter:
    return RedactingJsonFormatter(
        "{asctime}{levelname}{message}{threadName}",
        style="{",
        rename_fields={
            "asctime": "time",
            "levelname": "level",
            "threadName": "thread",
            "exc_info": "trace",
        },
    )


def set_up(directory: Path | None, file_name: str, level: str) -> None:
    """Send the log to `directory`/`file_name`, or to standard output without a directory.

    Raises OSError when the directory cannot be made or the file cannot be written.
    """
    handler: logging.Handler
    if directory is None:
        handler = logging.StreamHandler(sys.stdout)
    else:
        directory.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(directory / file_name)
    handler.setFormatter(_formatter())
    logging.basicConfig(handlers=[handler], level=level, force=True)
    # The driver and the HTTP server report at debug level what would drown our own lines.
    for noisy in ("pymongo", "waitress", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
