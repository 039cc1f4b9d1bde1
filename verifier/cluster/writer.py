"""One write command to a cluster: past a user write block, acknowledged by the majority, repeated while that helps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bson.codec_options import CodecOptions
from pymongo.errors import WriteConcernError

from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.runtime.retry import retry
from verifier.runtime.tasks import StopToken

_MAJORITY = {"w": "majority"}
# Servers quote keys in their messages, and those of a collated key are no text.
_LENIENT: CodecOptions[dict[str, Any]] = CodecOptions(unicode_decode_error_handler="replace")


class ClusterWriter:
    """Runs commands that may be repeated without harm, as all of ours are.

    With access control the user's privilege carries a write past a user write block; without it a field of the command
    does (`mayBypassWriteBlocking`, with which routers speak for their users), which the driver's helpers cannot add.
    `confirm` is called before each write, and raises when this process may not write any more.
    """

    def __init__(
        self,
        client: Client,
        access_control: bool,
        stop: StopToken,
        confirm: Callable[[], None] | None = None,
    ) -> None:
        self._client = client
        self._confirm = confirm
        self._extra = {} if access_control else {"mayBypassWriteBlocking": True}
        self._stop = stop

    def run(self, database: str, command: dict[str, Any], repeat: bool = True) -> dict[str, Any]:
        """The server's reply, in which write errors of single documents are left to the caller.

        Raises the driver's errors, the last one after transient ones have lasted too long; without `repeat`, the first.
        """

        # Our fields go last: the first names the command.
        full = {**command, "writeConcern": _MAJORITY, **self._extra}
        return self._repeat(database, full) if repeat else self._once(database, full)

    def administer(self, command: dict[str, Any], database: str = "admin") -> dict[str, Any]:
        """Run an administrative command that takes no write concern of its own. Raises the driver's errors."""
        return self._repeat(database, command)

    def _repeat(self, database: str, command: dict[str, Any]) -> dict[str, Any]:
        # Tried once even when stopped: what a process saves on its way out is worth one call.
        return retry(lambda: self._once(database, command), failures.is_transient, self._stop)

    def _once(self, database: str, command: dict[str, Any]) -> dict[str, Any]:
        if self._confirm is not None:
            self._confirm()
        reply = self._client.get_database(database).command(command, codec_options=_LENIENT)
        error = reply.get("writeConcernError")
        if error is not None:
            raise WriteConcernError(error.get("errmsg", ""), error.get("code"), error)
        return reply
