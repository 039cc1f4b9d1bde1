"""A pytest plugin that runs a failed test marked `retry` once more, if a busy machine can be the only cause.

On a busy machine, a replica set can be without a primary, or a process without CPU time, for longer than any deadline.
So a test is retried if all its errors are timeouts or servers that the test's own client could not reach. A failed
assertion is never retried, because a retry could hide a lost write. A daemon that does not answer is not retried
either, because it has probably crashed. The last line of the output says how many tests were retried.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Generator, Iterator

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key, get_timeout_config_value
from _pytest.runner import runtestprotocol
from pymongo.errors import AutoReconnect

from tests.support.waiting import DeadlinePassed

# ServerSelectionTimeoutError is an AutoReconnect.
_EXCUSED = (DeadlinePassed, AutoReconnect)
_RETRIED = "retried"
_ERRORS = pytest.StashKey[list[BaseException]]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "retry: run once more after a timeout (tests/support/retries.py)"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if item.get_closest_marker("retry") is None:
        return None
    if _run(item, nextitem, is_last=False):
        # End all fixtures, because pytest would raise the error of a shared fixture that has failed again.
        item.session._setupstate.teardown_exact(None)
        _run(item, nextitem, is_last=True)
    return True


def _run(item: pytest.Item, nextitem: pytest.Item | None, is_last: bool) -> bool:
    """Run and report a test. Return True if the test must run again; its failures are then reported as retried.

    If `is_last`, the test is not run again.
    """
    errors = item.stash[_ERRORS] = []
    location = {"nodeid": item.nodeid, "location": item.location}
    item.ihook.pytest_runtest_logstart(**location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    again = not is_last and bool(errors) and all(map(_is_excused, errors))
    if again:
        reports = [each for each in reports if each.failed]
        for report in reports:
            report.outcome = _RETRIED  # type: ignore[assignment]
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(**location)
    return again


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None:
        item.stash.setdefault(_ERRORS, []).append(call.excinfo.value)
    return report


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Set the time limit of a test again after an error, because the clean-up of the test may hang.

    pytest cancels the time limit at the first error.
    """
    seconds = get_timeout_config_value(node.config)
    if seconds > 0 and isinstance(node, pytest.Item):
        output = node.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(seconds, exit=True, file=output)


def _is_excused(error: BaseException) -> bool:
    """Return whether the error is a timeout or an unreachable server, without a failed assertion among its causes.

    For example, a timeout in a `finally` block may follow a failed assertion.
    """
    chain = list(_chain(error))
    return isinstance(error, _EXCUSED) and not any(isinstance(e, AssertionError) for e in chain)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    return (_RETRIED, "R", "RETRIED") if report.outcome == _RETRIED else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why each test was retried."""
    for report in terminalreporter.getreports(_RETRIED):
        terminalreporter.section(f"first run of {report.nodeid}", sep="-")
        terminalreporter.line(report.longreprtext)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Print how many tests were retried, as the last line of the output. Worker processes of xdist print nothing."""
    reporter: pytest.TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and reporter.stats and not config.option.collectonly:
        retried = {report.nodeid for report in reporter.stats.get(_RETRIED, ())}
        reporter.write_line(
            f"{len(retried)} {'test was' if len(retried) == 1 else 'tests were'} retried"
        )
