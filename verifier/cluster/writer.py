"""Runs write commands on a cluster, even while it blocks user writes. Retries temporary failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bson.binary import Binary
from bson.timestamp import Timestamp
from pymongo.client_session import ClientSession
from pymongo.errors import NetworkTimeout, NotPrimaryError, OperationFailure

from verifier.cluster import failures, rawbson
from verifier.cluster.calls import builds_indexes, kept
from verifier.cluster.connect import Client, replacing_connections
from verifier.cluster.note import reply_time
from verifier.runtime.retry import Temporary, retry
from verifier.runtime.tasks import StopToken

# If the majority does not acknowledge a write within this time, the server reports an error, and the write is retried.
# So the reason for a long wait is known. In milliseconds.
_ACKNOWLEDGEMENT_MS = 10_000
MAJORITY = {"w": "majority", "wtimeout": _ACKNOWLEDGEMENT_MS}
PRIMARY_ONLY = {"w": 1}


class ClusterWriter:
    """Runs idempotent writes (`run`) and administrative commands (`administer`), and retries temporary failures.

    A write block of the cluster does not apply to the commands of `run`. With access control, the user needs the
    privilege `bypassWriteBlockingMode` for this. Without access control, `run` adds the field `mayBypassWriteBlocking`,
    which the driver's helpers cannot add. `confirm` is called before each attempt of a command, and raises an error if
    this process may no longer write.
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

    def run(
        self,
        database: str,
        command: dict[str, Any],
        retried: bool = True,
        *,
        is_done: Callable[[], bool] | None = None,
    ) -> dict[str, Any]:
        """Run a command and return the reply. The caller must check the reply's `writeErrors` for refused writes.

        The command waits for the majority, unless it has another write concern. Unless `retried` is False, temporary
        failures are retried, including failures of single documents. A command that builds or scans an index is not
        sent again while the server still runs it, except a `collMod` on a sharded cluster. Raises the driver's errors,
        the errors of `confirm`, and `Cancelled` if stopped before a retry; the first attempt is made in any case.

        `is_done`, which is only used if `retried`, is called before each attempt: if it returns True, the command has
        already had its effect, and an empty reply is returned. With `is_done`, the error CommandFailed is retried for a
        minute, too: another command may have changed the same index meanwhile.
        """

        # Our fields go last: the first field names the command.
        full = {**command, **self._extra}
        full.setdefault("writeConcern", MAJORITY)
        if "createIndexes" in command:
            # By default, an index build waits for all voting members: one member that is down would block it.
            full["commitQuorum"] = "majority"
        session = self._session_of(command)
        if not retried:
            return self._once(database, full, session)
        return self._retry(database, full, session, is_done)

    def run_timed(self, database: str, command: dict[str, Any]) -> tuple[dict[str, Any], Timestamp]:
        """Run a command like `run`; return the reply, and a cluster time that is not before the writes of the command.

        If a newly elected primary does not know the cluster time yet, the command is run again.
        """

        def run() -> tuple[dict[str, Any], Timestamp]:
            reply = self.run(database, command)
            return reply, reply_time(reply)

        return retry(run, _is_timeless, self._stop)

    def drop(self, database: str, name: str, uuid: Binary | None) -> None:
        """Drop the collection with this name and UUID; a no-op if there is none. If `uuid` is None, any UUID matches.

        With a UUID, a delayed command cannot drop a later collection of the same name. Raises the same errors as `run`.
        """
        command = {"drop": name} if uuid is None else {"drop": name, "collectionUUID": uuid}
        try:
            self.run(database, command)
        except OperationFailure as error:
            if error.code not in failures.DROPPED:
                raise

    def administer(self, command: dict[str, Any], database: str = "admin") -> dict[str, Any]:
        """Run an administrative command without adding a write concern, and return the reply.

        Temporary failures are retried. Raises the same errors as `run`.
        """
        return self._retry(database, command)

    def _session_of(self, command: dict[str, Any]) -> ClientSession | None:
        """Return the session with which `run` sends a command; None if the driver chooses the session.

        Subclasses may override this method.
        """
        return None

    def _retry(
        self,
        database: str,
        command: dict[str, Any],
        session: ClientSession | None = None,
        is_done: Callable[[], bool] | None = None,
    ) -> dict[str, Any]:
        is_repeated = False

        def attempt() -> dict[str, Any]:
            nonlocal is_repeated
            if is_repeated:
                self._refuse_running(database, command)
            is_repeated = builds_indexes(command)
            if is_done is not None and is_done():
                return {}
            return self._once(database, command, session)

        # Make one attempt even if stopped: a process that shuts down may still save its state with one call.
        return retry(attempt, failures.temporary if is_done is None else _overtaken, self._stop)

    def _refuse_running(self, database: str, command: dict[str, Any]) -> None:
        """Raise NetworkTimeout, a temporary error, while the cluster still runs an earlier attempt of a command.

        If it were sent again, a `createIndexes` would wait for the same index build, so that the waiting operations
        accumulate; and a `collMod` that makes an index unique would scan the whole index again.

        On a sharded cluster, a `collMod` is never found, because shards run it as `_shardsvrCollMod`. This is intended:
        if it is sent again, it waits for the end of the first one, and returns its reply. If it were sent only after
        that end, a scan that outlasts the socket timeout would begin again and again.
        """
        name = next(iter(command))
        fields = [each for each in (name, "index", "indexes") if each in command]
        wanted = {f"command.{each}": {"$eq": command[each]} for each in fields}
        # The errors of the retry name the command, not this query.
        with kept():
            running = self._operations({**wanted, "command.$db": database})
        if running:
            raise NetworkTimeout("the server is still running an earlier attempt of the command")

    def _operations(self, wanted: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the operations of this user that the cluster runs now, and that match the query `wanted`."""
        pipeline = [{"$currentOp": {}}, {"$match": wanted}]
        found = self.administer({"aggregate": 1, "pipeline": pipeline, "cursor": {}})
        operations: list[dict[str, Any]] = found["cursor"]["firstBatch"]
        return operations

    def _once(
        self, database: str, command: dict[str, Any], session: ClientSession | None
    ) -> dict[str, Any]:
        if self._confirm is not None:
            self._confirm()
        with replacing_connections(self._client):
            # The driver must not decode the reply: servers quote keys of users' documents in their errors, and the keys
            # of a collated index are not valid text.
            raw = self._client.get_database(database).command(
                command, codec_options=rawbson.RAW_LENIENT, session=session
            )
        reply = rawbson.decode_reply(raw)
        _raise_temporary(reply)
        return reply


def _is_timeless(error: BaseException) -> Temporary | None:
    # `run` has retried all other errors already.
    return failures.temporary(error) if isinstance(error, NotPrimaryError) else None


def _overtaken(error: BaseException) -> Temporary | None:
    """Classify an error for `retry` as `failures.temporary` does, but also retry if another command was faster.

    This retry is limited, because the same code can have other causes, which may be permanent.
    """
    if failures.code_of(error) == failures.COMMAND_FAILED:
        text, patience = failures.with_command(error), failures.UNFORESEEN_PATIENCE
        return Temporary(text, failures.CHECK_LOG, patience)
    return failures.temporary(error)


def _raise_temporary(reply: dict[str, Any]) -> None:
    """Raise the first temporary error that a reply contains; do nothing if there is none.

    If a shard fails, mongos reports an error for each write to that shard. It reports a write concern error only if a
    write succeeded.
    """
    for each in reply.get("writeErrors", ()):
        if not failures.is_refusal_code(each["code"]):
            raise OperationFailure(each.get("errmsg", "a write failed"), each["code"], each)
    failures.refuse_unconfirmed(reply)
