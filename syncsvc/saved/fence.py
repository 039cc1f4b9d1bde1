"""Makes a cluster refuse writes of a sync that arrive late.

A command can be delayed in the network or on a server while its process is killed, paused or superseded, or while the
process retries the command. If the delayed command ran afterwards, it would undo newer writes. So each insert, update
and delete carries a session and a number (`lsid`, `txnNumber`): a server refuses a number below the highest that it has
seen on the session, with code 225.

A slot is such a session, used by one write at a time. It is settled when no command that was sent on it can take effect
any more: either each has ended, or a majority of the cluster has recorded a higher number. The lsids of an engine
are derived from a UUID in the run record, and the numbers begin with the epoch of the record. Before a new engine
writes anything else, it saves the next epoch and settles all slots. So the writes of earlier engines are refused,
whether they ran in this process or in another one.

Sharded clusters keep the numbers on each shard. Slots are settled there by updates in a sharded collection that has
documents on every shard. Exception: servers newer than 6.0 place none on shards that are being removed (draining).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any, cast
from uuid import UUID, uuid4, uuid5

from bson.binary import Binary
from bson.int64 import Int64
from pymongo.client_session import ClientSession
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError

from syncsvc import errors
from verifier.cluster import failures
from verifier.cluster.bounds import one_save
from verifier.cluster.calls import kept
from verifier.cluster.connect import Client
from verifier.cluster.inventory import list_raw
from verifier.cluster.writer import MAJORITY, ClusterWriter
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import Temporary, retry
from verifier.runtime.tasks import POLL, StopToken, for_each, single_error

_log = logging.getLogger(__name__)

# The collection in which slots are settled, in the metadata database.
FENCES = "fences"
# The number of slots: this many threads can write at the same time, and other threads wait. Never lower it, because the
# slots of a process of an earlier version must be settled, too.
_SLOTS = 64
# The maximum number of slots that are settled at the same time.
_SETTLING = 16
# On a sharded cluster, a slot is settled by updating this many documents (marks) for each shard. The hash of its `_id`
# determines the shard of a mark, so a shard is missed with a probability of at most e**-16 if chunks are spread evenly.
_MARKS_A_SHARD = 16
_COUNTER_BITS = 32
# How long to wait until killed commands end, and how long to retry to shard the collection `FENCES`, in seconds.
_PATIENCE = 10.0

# The write commands, which are sent with a `txnNumber`.
_NUMBERED = frozenset({"insert", "update", "delete"})
# An index build continues when the process that requested it is killed. The next process joins it, so it must not be
# ended.
_CONTINUED = "createIndexes"
# A failed transaction costs as much as the write that follows it. After a failure, this many batches for the collection
# are written without a transaction. (Some collections, such as capped ones, do not support transactions.)
_BATCHES_WITHOUT = 50


def _marked_too_early(error: BaseException) -> Temporary | None:
    """Classify an error for `retry`: return why to retry if the collection `FENCES` could not be sharded, else None.

    The cause is that another writer wrote to the collection before it was sharded. The next attempt drops the
    collection and creates it again.
    """
    if isinstance(error, OperationFailure) and error.code == failures.INVALID_OPTIONS:
        what = f"The collection {FENCES} cannot be sharded, because another thread or process wrote to it"
        remedy = "You need not do anything: the next attempt creates the collection again."
        return Temporary(what, remedy, _PATIENCE)
    return None


def _session(client: Client, lsid: Binary) -> ClientSession:
    """Return a session with this ID (`lsid`). The caller must not end it: the driver would reuse the ID elsewhere."""
    session = client.start_session(causal_consistency=False)
    cast(dict[str, Any], session.session_id)["id"] = lsid
    return session


class Slot:
    """A session on which one write at a time is sent to a cluster, and the numbers (`txnNumber`) of its writes.

    The numbers increase from `first` + 1 on, so that servers can reject late writes. `lsid` is the ID of the session,
    and `name` identifies the slot in the collection `FENCES`. `settled` is False while an earlier command on the
    session may still take effect.
    """

    def __init__(self, name: str, lsid: Binary, first: int, settled: bool) -> None:
        self.name = name
        self.lsid = lsid
        self.settled = settled
        self.session: ClientSession | None = None
        self._number = first

    def next_number(self) -> Int64:
        self._number += 1
        return Int64(self._number)


class Fence:
    """A pool of sessions (slots) with which one engine writes to one cluster. Thread-safe.

    The numbers of its writes make servers reject late writes of earlier engines. `definitions` is the ID of the session
    for DDL commands. `succeeds_another` is whether DDL commands of an earlier engine may still run.
    """

    def __init__(self, identity: UUID, epoch: int, slots: int = _SLOTS) -> None:
        """Create `slots` sessions for the engine with this epoch.

        The IDs of the sessions are derived from `identity`, the field `fence` of the run record. In the first epoch,
        all sessions count as settled, because nothing was sent on them before.
        """
        self._changed = threading.Condition()  # guards _free
        self._free = [
            Slot(
                f"{identity.hex} {number}",
                _lsid(identity, f"slot {number}"),
                epoch << _COUNTER_BITS,
                settled=epoch <= 1,
            )
            for number in range(slots)
        ]
        self.definitions = _lsid(identity, "definitions")
        self.succeeds_another = epoch > 1

    @classmethod
    def of_process(cls) -> Fence:
        """Return a fence with a single new session, which only this process uses, for saves of the run record.

        Sessions derived from the epoch cannot be used for these saves: the saves begin before the epoch of the run is
        known.
        """
        return cls(uuid4(), 1, slots=1)

    @contextmanager
    def slot(self, stop: StopToken) -> Iterator[Slot]:
        """Reserve a slot (a session for one write) during the block; wait until one is free.

        Slots on which an earlier command may still take effect are reserved first. Raises `Cancelled` if `stop` is
        set while no slot is free.
        """
        slot = self._take(stop)
        try:
            yield slot
        finally:
            with self._changed:
                self._free.append(slot)
                self._changed.notify()

    @property
    def unsettled(self) -> int:
        """Return the number of idle slots on which an earlier command may still take effect."""
        with self._changed:
            return sum(not each.settled for each in self._free)

    def _take(self, stop: StopToken) -> Slot:
        with self._changed:
            while not self._free:
                stop.wait(self._changed)
            slot = next((each for each in self._free if not each.settled), self._free[-1])
            self._free.remove(slot)
            return slot


def _lsid(identity: UUID, name: str) -> Binary:
    return Binary(uuid5(identity, name).bytes, 4)


class FencedWriter(ClusterWriter):
    """Runs commands on a cluster so that no command takes effect after its call has returned or raised.

    There are two exceptions: commands other than inserts, updates and deletes, which accept no `txnNumber`; and calls
    that raise `Cancelled` or run out of time, whose commands can take effect until `settle` is called or another write
    uses their session. `metadata` is the name of the metadata database, and `sharded` is whether the cluster is
    sharded. `confirm` is called before each command, and raises an error if this process may no longer write.
    """

    def __init__(
        self,
        client: Client,
        access_control: bool,
        stop: StopToken,
        fence: Fence,
        metadata: str,
        sharded: bool,
        confirm: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(client, access_control, stop, confirm)
        self._fence = fence
        self._metadata = metadata
        self._sharded = sharded
        # The shards when the collection `FENCES` was last spread, and whether each was draining. Empty for a replica
        # set, until the collection is sharded, and while it is spread again because the shards have changed.
        self._spread: Mapping[str, bool] = {}
        # Held while the collection is sharded; guards changes of _spread.
        self._spreading = threading.Lock()
        # By database and collection: how many more batches to write without a transaction. Only positive numbers are
        # kept, so that collections which are created and dropped all the time take no memory.
        self._without: dict[tuple[str, str], int] = {}

    def settle(self) -> None:
        """Make sure that no insert, update or delete sent by this writer or an earlier engine can still take effect.

        This covers neither calls of this writer that are still running nor DDL commands (see `end_definitions`). Raises
        OperationError Superseded if another process has taken over the run, and the driver's errors.
        """
        left = self._fence.unsettled
        if left:
            # Settle the first slot alone, because this may have to shard the collection `FENCES`.
            self._settle_next(0, self._stop)
        # Use a new stop token: even an engine that is being stopped makes one attempt for each slot.
        with single_error():
            for_each("settle", range(1, left), self._settle_next, _SETTLING, StopToken())

    def _settle_next(self, number: int, stop: StopToken) -> None:
        with self._fence.slot(stop) as slot:
            self._settle(slot)

    def end_definitions(self, cluster: str) -> None:
        """Kill the DDL commands that earlier engines have left running, except index builds, and wait until they end.

        If they still run after 10 seconds, log a warning and return. `cluster` is the name of the cluster, for the log.
        """
        if not self._fence.succeeds_another:
            return
        lsid = self._fence.definitions
        self.administer({"killSessions": [{"id": lsid}]})
        began = monotonic()
        while running := self._running(lsid):
            if monotonic() - began > _PATIENCE:
                _log.warning(
                    "An earlier DDL command of the sync still runs on a cluster, and may take effect after newer "
                    "commands. If the cluster is the destination, the verification detects a wrong result before the "
                    "commit. If the verification is disabled, or the cluster is the source, check the definitions on "
                    "the cluster yourself before the commit.",
                    extra={"cluster": cluster, "commands": running},
                )
                return
            self._stop.sleep(POLL)

    def _running(self, lsid: Binary) -> list[str]:
        found = self._operations({"lsid.id": lsid, "op": "command"})
        return [str(each.get("command")) for each in found]

    def run(
        self,
        database: str,
        command: dict[str, Any],
        retried: bool = True,
        as_transaction: bool = False,
        *,
        is_done: Callable[[], bool] | None = None,
    ) -> dict[str, Any]:
        """Run a command like `ClusterWriter.run`. Inserts, updates and deletes always wait for the majority.

        With `as_transaction`, an insert, update or delete first runs as one transaction, except on a sharded cluster,
        and except shortly after a failed transaction on the same collection. A transaction costs the server half as
        much as retryable updates or deletes, each of which the server records separately; retryable inserts cost less
        than a transaction. If the transaction fails, the statements are run without a transaction, except if `retried`
        is False and the connection is lost.

        Only DDL commands use `is_done`. Raises OperationError Superseded if another process has taken the run over, and
        the errors of `ClusterWriter.run`.
        """
        name, target = next(iter(command.items()))
        if name not in _NUMBERED:
            return super().run(database, command, retried, is_done=is_done)
        with self._fence.slot(self._stop) as slot:
            try:
                if as_transaction and self._takes_transaction(database, target):
                    reply = self._transact(slot, database, command, retried)
                    if reply is not None:
                        return reply
                    self._without[database, target] = _BATCHES_WITHOUT
                return self._write(slot, database, command, retried)
            except PyMongoError:
                # The caller continues with other writes, and this one must not take effect after them.
                self._settle_in_time(slot)
                raise

    def _takes_transaction(self, database: str, target: str) -> bool:
        if self._sharded:
            # The transaction would need a two-phase commit, which costs more than it saves.
            return False
        left = self._without.pop((database, target), 0)
        if left > 1:
            self._without[database, target] = left - 1
        return not left

    def _write(
        self, slot: Slot, database: str, command: dict[str, Any], retried: bool
    ) -> dict[str, Any]:
        def attempt() -> dict[str, Any]:
            self._settle_once(slot)
            full = {**command, "writeConcern": MAJORITY, **self._extra}
            return self._send(slot, database, {**full, "txnNumber": slot.next_number()})

        return retry(attempt, failures.temporary, self._stop) if retried else attempt()

    def _transact(
        self, slot: Slot, database: str, command: dict[str, Any], retried: bool
    ) -> dict[str, Any] | None:
        """Run a command as a transaction. Return its reply, or None if the transaction failed.

        After a lost connection, it is unknown whether the transaction was committed. Then return None if `retried`;
        otherwise, raise the driver's error.
        """
        try:
            self._settle_once(slot)
            transaction = {"txnNumber": slot.next_number(), "autocommit": False}
            begun = {**command, **self._extra, **transaction, "startTransaction": True}
            reply = self._send(slot, database, begun)
            if reply.get("writeErrors"):
                # The server has aborted the transaction.
                return None
            commit = {"commitTransaction": 1, **transaction, "writeConcern": MAJORITY}
            self._send(slot, "admin", commit)
            return reply
        except OperationFailure:
            return None
        except ConnectionFailure:
            if not retried:
                raise
            return None

    def _settle_in_time(self, slot: Slot) -> None:
        """Settle a slot after a failed write, unless the caller's timeout has expired.

        In that case, the next write on the slot settles it. Error texts name the command of the failed write, not the
        commands that settle the slot. Raises the errors of `_settle_once`, except ClusterUnreachable and the driver's
        transient errors; and `Cancelled`.
        """
        try:
            with kept():
                self._settle(slot)
        except OperationError as error:
            if error.kind is not failures.CLUSTER_UNREACHABLE:
                raise
        except PyMongoError as error:
            if not failures.is_transient(error):
                raise

    def _settle(self, slot: Slot) -> None:
        retry(lambda: self._settle_once(slot), failures.temporary, self._stop)

    def _settle_once(self, slot: Slot) -> None:
        """Make a majority of the cluster record a `txnNumber` above those of all earlier commands of the slot.

        This is a no-op if the slot is settled. The update must change documents, because a write that changes nothing
        raises the number only in the memory of one server. Raises the errors of `_marked_shards` and `_send`, and
        RuntimeError if the server refuses the update; the slot then stays unsettled.
        """
        while not slot.settled:
            spread = self._marked_shards()
            number = slot.next_number()
            mark = {"$set": {"number": number, "lsid": slot.lsid}}
            updates = [
                {"q": {"_id": f"{slot.name} {each}"}, "u": mark, "upsert": True}
                for each in range(_MARKS_A_SHARD * len(spread) or 1)
            ]
            command = {"update": FENCES, "updates": updates, "ordered": False, "txnNumber": number}
            reply = self._send(
                slot, self._metadata, {**command, "writeConcern": MAJORITY, **self._extra}
            )
            if reply.get("writeErrors"):
                slot.settled = False
                raise RuntimeError(
                    "the server refused updates that block late writes: "
                    f"{reply['writeErrors'][:3]}"
                )
            if self._spread != spread:
                # Another thread has created the collection again: the marks may not have reached all shards.
                slot.settled = False

    def _marked_shards(self) -> Mapping[str, bool]:
        """Return the shards, and whether each is draining. Spread the collection `FENCES` over them first.

        The result is empty for a replica set. Raises the driver's errors. In a block of `retry.impatient`, also raises
        OperationError ClusterUnreachable if another thread's call hangs.
        """
        if not self._sharded:
            return {}
        # Read them each time, because a shard may be added during the sync.
        shards = self._shards()
        with one_save(self._spreading, f"the collection {FENCES}"):
            if shards != self._spread:
                self._spread = {}
                self._spread = retry(self._spread_marks, _marked_too_early, self._stop)
            return self._spread

    def _shards(self) -> Mapping[str, bool]:
        rows = self._client["config"]["shards"].find()
        return {each["_id"]: bool(each.get("draining")) for each in rows}

    def _spread_marks(self) -> Mapping[str, bool]:
        """Make sure that the collection `FENCES` has a chunk on every shard, by creating it again if necessary.

        Shards that are draining need no chunk: servers newer than 6.0 place none there. Return all shards, and whether
        each is draining. Raises the driver's errors.
        """
        shards = self._shards()
        needed = {shard for shard, draining in shards.items() if not draining}
        listed = list_raw(self._client, self._metadata, {"name": FENCES})
        uuid = listed[0]["info"]["uuid"] if listed else None
        chunks = self._client["config"]["chunks"].find({"uuid": uuid}) if listed else ()
        if not needed <= {each["shard"] for each in chunks}:
            if uuid is not None:
                # The drop does nothing if the collection now has another UUID: then another writer has just sharded it.
                # The dropped marks are not needed: the servers keep the numbers with the sessions.
                self.drop(self._metadata, FENCES, uuid)
            command = {"shardCollection": f"{self._metadata}.{FENCES}", "key": {"_id": "hashed"}}
            super().run("admin", command)
        return shards

    def _send(self, slot: Slot, database: str, command: dict[str, Any]) -> dict[str, Any]:
        """Send one command on a slot, and return the reply.

        Afterwards, `slot.settled` says whether all commands on the slot have ended. Raises OperationError Superseded if
        the server refuses the command's `txnNumber`, and the driver's errors.
        """
        if slot.session is None:
            slot.session = _session(self._client, slot.lsid)
        was_settled, slot.settled = slot.settled, False
        try:
            reply = self._once(database, command, slot.session)
        except OperationFailure as error:
            if error.code == failures.TRANSACTION_TOO_OLD:
                raise OperationError(
                    errors.SUPERSEDED,
                    "A cluster refused a write of this process, because another process has taken the sync over.",
                ) from error
            # The refused command has ended. If it was to settle earlier commands on the slot, these may still run. A
            # router may have sent the command to several shards, and have returned the reply of only one.
            slot.settled = was_settled and not self._sharded
            raise
        slot.settled = True
        return reply

    def _session_of(self, command: dict[str, Any]) -> ClientSession | None:
        if next(iter(command)) == _CONTINUED:
            return None
        return _session(self._client, self._fence.definitions)
