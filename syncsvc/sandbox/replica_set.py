"""A replica set of throw-away mongods on loopback, with or without access control and TLS.

Never keep data in such a replica set: its processes and files are removed at the end.
"""

import secrets
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any, Self, TypeVar
from urllib.parse import quote_plus

from pymongo import MongoClient
from pymongo.errors import ConnectionFailure, OperationFailure

from syncsvc.sandbox.binary import find_mongod
from syncsvc.sandbox.errors import SandboxError
from syncsvc.sandbox.mongod import Certificates, Mongod, MongodOptions
from syncsvc.sandbox.reaper import keeper

T = TypeVar("T")
Client = MongoClient[dict[str, Any]]

SYNC_ROLES = (
    "readWriteAnyDatabase",
    "dbAdminAnyDatabase",
    "clusterMonitor",
    "backup",
    "restore",
)
_SETTINGS_OF_THREE = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 500}
_DEADLINE = 120.0
_POLL_INTERVAL = 0.02
# The code with which a primary refuses to step down, as long as no other member has caught up.
_EXCEEDED_TIME_LIMIT = 262


class ReplicaSet:
    """A replica set of one or three mongods. After start(), and in a `with` block, it accepts writes.

    start() creates a data folder in `folder` (default: the system's temporary folder), and stop() removes it. `binary`
    is the mongod to run, by default the result of find_mongod(). `cluster_role` is the role in a sharded cluster,
    "configsvr" or "shardsvr"; the caller must set up that cluster. With `certificates`, all connections need TLS. See
    `MongodOptions` for `parameters`.
    """

    def __init__(
        self,
        *,
        name: str = "sandbox",
        members: int = 1,
        access_control: bool = False,
        certificates: Certificates | None = None,
        oplog_size_mb: int | None = None,
        cache_size_gb: float = 0.25,
        parameters: Mapping[str, str] = MappingProxyType({}),
        folder: Path | None = None,
        binary: Path | None = None,
        cluster_role: str | None = None,
    ) -> None:
        if members not in (1, 3):
            raise SandboxError(
                f"The sandbox cannot start a replica set of {members} members: use 1 or 3 members."
            )
        self.name = name
        self.members: tuple[Mongod, ...] = ()
        self._size = members
        self._access_control = access_control
        self._certificates = certificates
        self._options = MongodOptions(
            name,
            cache_size_gb,
            oplog_size_mb,
            parameters,
            certificates=certificates,
            cluster_role=cluster_role,
        )
        self._parent_folder = folder or Path(tempfile.gettempdir())
        self._folder: Path | None = None
        self._binary = binary
        self._root_user = ""
        self._sync_user = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def uri(self) -> str:
        """Return the connection string for syncsvc and its verifier; with access control, its user is `sync`."""
        return self._uri(self._sync_user)

    @property
    def root_uri(self) -> str:
        """Return the connection string for tests; with access control, it logs in as the user `root`."""
        return self._uri(self._root_user)

    def start(self) -> None:
        """Start all members, and wait until one is primary and the others are secondaries.

        With access control, also create the users `root` and `sync`. Raises SandboxError if the replica set was
        already started, or if the start fails.
        """
        if self.members:
            raise SandboxError(f"The replica set {self.name} was started already; stop it first.")
        binary = self._binary or find_mongod()
        with ExitStack() as undo:
            undo.callback(self.stop)
            self._start_members(binary)
            self._initiate()
            if self._access_control:
                self._create_first_users()
            undo.pop_all()

    def stop(self) -> None:
        """Kill all members and remove their data; a no-op if the replica set was not started."""
        for member in self.members:
            member.close()
        self.members = ()
        self._root_user = self._sync_user = ""
        if self._folder is not None:
            keeper.remove_folder(self._folder)
            self._folder = None

    def client(self, **options: Any) -> Client:
        """Return a new client; with access control, it logs in as the user `root`. The caller must close it."""
        return MongoClient(self.root_uri, **options)

    def primary(self) -> Mongod:
        """Return the primary. Wait until one is elected; raise SandboxError if that takes too long."""
        return _wait_for(self._find_primary, f"the replica set {self.name} to have a primary")

    def step_down(self) -> Mongod:
        """Make the primary step down, and return the next primary (the same member in a set of one)."""
        command: dict[str, Any] = {"replSetStepDown": 10, "secondaryCatchUpPeriodSecs": 5}
        if self._size == 1:
            command = {"replSetStepDown": 1, "secondaryCatchUpPeriodSecs": 0, "force": True}
        with self._direct_client(self.primary(), self._root_user) as client:
            _wait_for(
                lambda: self._steps_down(client, command),
                "another member to catch up with the primary",
            )
        return self.primary()

    def _steps_down(self, primary: Client, command: dict[str, Any]) -> bool:
        """Send `command` to the primary. Return True if the primary steps down, False if no secondary has caught up.

        Raises SandboxError if the primary refuses for another reason.
        """
        try:
            primary.admin.command(command)
        except OperationFailure as error:
            if error.code == _EXCEEDED_TIME_LIMIT:
                return False
            raise SandboxError(
                f"The primary of {self.name} did not step down: {error}. "
                "Check that the other members run and have caught up."
            ) from error
        return True

    def kill_member(self, index: int) -> None:
        """Kill the member with this index (from 0) with SIGKILL, to simulate a crash of the server."""
        self.members[index].kill()

    def restart_member(self, index: int) -> None:
        """Restart the member with this index (from 0) with its data, and wait until it is primary or secondary."""
        self.members[index].restart()
        self._wait_until_in_service(self.members[index])

    def create_user(self, name: str, roles: Sequence[str]) -> str:
        """Create a user with a random password, and return a connection string that logs in as this user."""
        with self.client() as client:
            return self._uri(_create_user(client, name, roles))

    def _start_members(self, binary: Path) -> None:
        try:
            self._folder = keeper.make_folder(self._parent_folder)
        except OSError as error:
            raise SandboxError(
                f"No data folder could be made in {self._parent_folder}: {error}. "
                "Choose an existing, writable folder."
            ) from error
        options = self._options
        if self._access_control:
            options = replace(options, key_file=_write_key_file(self._folder))
        folders = [self._folder / f"member{index}" for index in range(self._size)]
        self.members = tuple(Mongod(binary, folder, options) for folder in folders)
        for member in self.members:
            member.start()
        for member in self.members:
            member.wait_until_listening()

    def _initiate(self) -> None:
        config: dict[str, Any] = {
            "_id": self.name,
            "members": [
                {"_id": number, "host": self._advertised(member)}
                for number, member in enumerate(self.members)
            ],
        }
        if self._size > 1:
            config["settings"] = _SETTINGS_OF_THREE
        if self._options.cluster_role == "configsvr":
            config["configsvr"] = True
        with self._direct_client(self.members[0]) as client:
            client.admin.command("replSetInitiate", config)
        self.primary()
        for member in self.members:
            self._wait_until_in_service(member)

    def _create_first_users(self) -> None:
        # Without users, a client on this host may create the first user, and nothing else (localhost exception).
        with self._direct_client(self.primary()) as client:
            self._root_user = _create_user(client, "root", ["root"])
        with self.client() as client:
            self._sync_user = _create_user(client, "sync", SYNC_ROLES)

    def _uri(self, user: str) -> str:
        if not self.members:
            raise SandboxError(f"The replica set {self.name} is not started; start it first.")
        addresses = ",".join(self._advertised(member) for member in self.members)
        return f"mongodb://{user}{addresses}/?replicaSet={self.name}{self._tls()}"

    def _advertised(self, member: Mongod) -> str:
        """Return the address by which clients and the other members reach a member."""
        return member.address

    def _find_primary(self) -> Mongod | None:
        running = (member for member in self.members if member.pid is not None)
        return next((member for member in running if self._role(member) == "primary"), None)

    def _wait_until_in_service(self, member: Mongod) -> None:
        what = f"the member {member.address} to be primary or secondary"
        _wait_for(lambda: self._role(member), what)

    def _role(self, member: Mongod) -> str:
        """Return "primary" or "secondary"; empty if the member is neither or does not answer."""
        try:
            with self._direct_client(member) as client:
                hello = client.admin.command("hello")
        except ConnectionFailure:
            return ""
        if hello.get("isWritablePrimary"):
            return "primary"
        return "secondary" if hello.get("secondary") else ""

    def _direct_client(self, member: Mongod, user: str = "") -> Client:
        uri = f"mongodb://{user}{member.address}/?directConnection=true{self._tls()}"
        return MongoClient(uri, serverSelectionTimeoutMS=5000)

    def _tls(self) -> str:
        if self._certificates is None:
            return ""
        return f"&tls=true&tlsCAFile={quote_plus(str(self._certificates.authority))}"


def _create_user(client: Client, name: str, roles: Sequence[str]) -> str:
    """Create the user with a random password, and return `name:password@` for a connection string."""
    password = secrets.token_hex(16)
    try:
        client.admin.command("createUser", name, pwd=password, roles=list(roles))
    except OperationFailure as error:
        raise SandboxError(
            f"The user {name} could not be created: {error}. Check the name and the roles."
        ) from error
    return f"{quote_plus(name)}:{password}@"


def _write_key_file(folder: Path) -> Path:
    key_file = folder / "key"
    key_file.touch(mode=0o600)
    key_file.write_text(secrets.token_hex(64))
    return key_file


def _wait_for(condition: Callable[[], T | None], what: str) -> T:
    pause = threading.Event()
    deadline = monotonic() + _DEADLINE
    while monotonic() < deadline:
        if result := condition():
            return result
        pause.wait(_POLL_INTERVAL)
    raise SandboxError(
        f"Timed out after {_DEADLINE:.0f} seconds while waiting for {what}. "
        "Check that a majority of the members is running and that this machine is not overloaded."
    )
