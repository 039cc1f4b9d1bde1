"""One mongod process on loopback: its port, its data folder and its log.

This module starts single servers; the module `replica_set` combines them.
"""

import json
import resource
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from syncsvc.sandbox.errors import SandboxError
from syncsvc.sandbox.ports import HOST, reserve_port
from syncsvc.sandbox.reaper import keeper

_PORT_ATTEMPTS = 5
_EXIT_ADDRESS_IN_USE = 48
_LISTENING = b'"id":23016'
# Logged by a server whose port was taken by another process after the server found it free. Such a server aborts.
_CANNOT_LISTEN = b'"id":31339'
_START_DEADLINE = 120.0
_POLL_INTERVAL = 0.01
# Fewer threads and files, test commands enabled, background work every second instead of rarely, and no minimum
# duration of a resharding.
_PARAMETERS = {
    "diagnosticDataCollectionEnabled": "false",
    "enableTestCommands": "1",
    "periodicNoopIntervalSecs": "1",
    "ttlMonitorSleepSecs": "1",
    "reshardingMinimumOperationDurationMillis": "0",
}
# One file of 100 MB for the journal of a server instead of three.
_ENGINE = "log=(prealloc=false)"
# The interval at which a server flushes its journal if no client waits for that, in milliseconds. With the default,
# 100, an idle server takes 50 % more CPU time.
_JOURNAL_INTERVAL = "500"


@dataclass(frozen=True)
class Certificates:
    """The PEM files for TLS: the CA certificates, and the server's key with its certificate chain.

    The server's certificate must be valid for the address 127.0.0.1.
    """

    authority: Path
    server: Path

    def arguments(self) -> list[str]:
        return [
            *("--tlsMode", "requireTLS", "--tlsCertificateKeyFile", str(self.server)),
            *("--tlsCAFile", str(self.authority), "--tlsAllowConnectionsWithoutCertificates"),
        ]


@dataclass(frozen=True)
class MongodOptions:
    """The options of a server: a replica set member, or a standalone if `replica_set` is None.

    `parameters` are server parameters (`--setParameter`); they override the defaults of this module.
    `cluster_role` is "configsvr" or "shardsvr" in a sharded cluster.
    """

    replica_set: str | None
    cache_size_gb: float = 0.25
    oplog_size_mb: int | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    key_file: Path | None = None
    certificates: Certificates | None = None
    cluster_role: str | None = None

    def arguments(self) -> list[str]:
        arguments = [] if self.replica_set is None else ["--replSet", self.replica_set]
        arguments += ["--wiredTigerCacheSizeGB", str(self.cache_size_gb)]
        arguments += ["--wiredTigerEngineConfigString", _ENGINE]
        arguments += ["--journalCommitInterval", _JOURNAL_INTERVAL]
        for name, value in {**_PARAMETERS, **self.parameters}.items():
            arguments += ["--setParameter", f"{name}={value}"]
        if self.oplog_size_mb is not None:
            # The oplog is only truncated up to the last checkpoint, so make one every second, not every minute.
            arguments += ["--oplogSize", str(self.oplog_size_mb), "--syncdelay", "1"]
        if self.key_file is not None:
            arguments += ["--keyFile", str(self.key_file)]
        if self.certificates is not None:
            arguments += self.certificates.arguments()
        if self.cluster_role is not None:
            arguments.append(f"--{self.cluster_role}")
        return arguments


class Mongod:
    """A mongod process that can be killed, and restarted with the same data and port. The caller must close it."""

    def __init__(self, binary: Path, folder: Path, options: MongodOptions) -> None:
        self._binary = binary
        self._folder = folder
        self._options = options
        self._log = folder / "mongod.log"
        self._log_offset = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._port_is_known = False
        self._port = reserve_port()

    @property
    def port(self) -> int:
        return self._port.number

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Return the process ID; None if the process is not running."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start the process without waiting until it listens, so that several servers can start in parallel."""
        self._folder.mkdir(exist_ok=True)
        with self._log.open("ab") as log:
            self._log_offset = log.tell()
            self._process = keeper.spawn(self._command(), log)
        # Each collection and index needs an open file, and mongod aborts at the limit of open files.
        hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, (hard_limit, hard_limit))

    def wait_until_listening(self) -> None:
        """Wait until the server listens. If its port is taken at the first start, start it again on another port.

        Raises SandboxError if the server ends before it listens, or does not listen within two minutes.
        """
        for _ in range(_PORT_ATTEMPTS):
            exit_code = self._wait_for_listening_or_exit()
            if exit_code is None:
                self._port_is_known = True
                return
            if self._port_is_known or not self._has_met_a_taken_port(exit_code):
                break
            self.close()
            self._port = reserve_port()
            self.start()
        raise self._failure(f"ended with exit code {exit_code} before it listened on the port")

    def kill(self) -> None:
        """Kill the process with SIGKILL, and wait for its end; a no-op if it does not run. The port stays reserved."""
        process, self._process = self._process, None
        if process is not None:
            keeper.kill(process)

    def close(self) -> None:
        """Kill the process for good, and release its port."""
        self.kill()
        self._port.release()

    def death(self) -> SandboxError | None:
        """Return an error that shows the log if the process has ended, but not by `kill`; None in all other cases."""
        process = self._process
        exit_code = None if process is None else process.poll()
        # Another thread may have killed the process meanwhile.
        if exit_code is None or process is not self._process:
            return None
        return self._failure(f"ended by itself with exit code {exit_code}")

    def restart(self) -> None:
        """Start the process again on the same port and data, killing it first if it runs; wait until it listens."""
        self.kill()
        self.start()
        self.wait_until_listening()

    def _command(self) -> list[str]:
        command = [str(self._binary), "--dbpath", str(self._folder), "--port", str(self.port)]
        return command + ["--bind_ip", HOST, "--nounixsocket", *self._options.arguments()]

    def _wait_for_listening_or_exit(self) -> int | None:
        """Wait until the server listens or ends. Return None if it listens; return its exit code if it has ended.

        Raises SandboxError after two minutes. The server's own log shows that it listens; a connection would not,
        because another process may listen on the port.
        """
        assert self._process is not None, "start() comes first"
        for _ in range(round(_START_DEADLINE / _POLL_INTERVAL)):
            if _LISTENING in self._log_of_this_start():
                return None
            try:
                return self._process.wait(_POLL_INTERVAL)
            except subprocess.TimeoutExpired:
                continue
        raise self._failure(f"did not listen within {_START_DEADLINE:.0f} seconds")

    def _log_of_this_start(self) -> bytes:
        with self._log.open("rb") as log:
            log.seek(self._log_offset)
            return log.read()

    def _has_met_a_taken_port(self, exit_code: int) -> bool:
        return exit_code == _EXIT_ADDRESS_IN_USE or _CANNOT_LISTEN in self._log_of_this_start()

    def _failure(self, what: str) -> SandboxError:
        lines = self._log_of_this_start().decode(errors="replace").splitlines()
        # A failed start logs pages about the shutdown; only the errors show the cause.
        telling = [line for line in lines if _is_telling(line)] or lines
        tail = "\n  ".join(line[:500] for line in telling[-10:])
        command = " ".join(self._command())
        return SandboxError(
            f"mongod on port {self.port} {what}. Its command was: {command}\n"
            f"Remove the cause that the log of mongod names, then try again. From the log:\n  {tail}"
        )


def _is_telling(line: str) -> bool:
    """Return whether a line of the server's log is an error, or is not JSON, such as a crash message."""
    try:
        return json.loads(line)["s"] in ("E", "F")
    except (ValueError, TypeError, KeyError):
        return bool(line.strip())
