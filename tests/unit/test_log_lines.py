"""Tests how the log lines for the documentation are found in the source code."""

from pathlib import Path

from tests.support.log_lines import LogLine, as_rst, log_lines

MODULE = """
_log.info("Begun.")
_log.warning(f"Waited {n} seconds. " "Look.", extra={"where": x, "since": y})
_log.error("%s failed", name, exc_info=error)
_log.critical(text)
other.info("no line of the log")
"""


def test_lines_are_read_from_the_code(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(MODULE)
    (tmp_path / "two.py").write_text(MODULE)
    assert log_lines(tmp_path.glob("*.py")) == [
        LogLine("error", "... failed", ("trace",)),
        LogLine("warn", "Waited ... seconds. Look.", ("where", "since")),
        LogLine("info", "Begun.", ()),
    ]
    assert as_rst(tmp_path.glob("one.py")).splitlines()[1] == (
        "- ``warn``: Waited ... seconds. Look. (``where``, ``since``)"
    )
