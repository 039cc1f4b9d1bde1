"""The exit statuses of `syncctl`."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """An exit status of `syncctl`; `meaning` is its description in the documentation."""

    meaning: str

    OK = (
        0,
        "The called process accepted the command, or the condition that the command checks holds.",
    )
    FAILED = (
        1,
        "The called process refused the command or would refuse it, ``doctor`` found a problem, the sync or the check "
        "has failed, the check is incomplete, the condition of ``watch`` can no longer become true, or a confirmation "
        "was not given.",
    )
    USAGE = (
        2,
        "An option, a file or the body of a request is invalid, or there is no terminal for a confirmation. Nothing "
        "was changed.",
    )
    UNREACHABLE = (
        3,
        "The called process did not answer, its answer cannot be read, or the output cannot be written. After a "
        "command, it is unknown whether the process received it: see ``syncctl status`` or ``syncctl verifier "
        "status``.",
    )
    NOT_YET = (
        4,
        "Not yet: a commit is not possible now, a check has not ended, or the time of ``--timeout`` is over.",
    )
    DENIED = (
        5,
        "The called process requires a token, the token does not permit the request, or the process does not accept "
        "the host name in the URL.",
    )
    INTERRUPTED = 130, "Interrupted by Ctrl-C. What the daemon or the verifier has begun goes on."

    def __new__(cls, value: int, meaning: str) -> Exit:
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member
