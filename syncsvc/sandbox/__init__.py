"""Throw-away local clusters on loopback, for trying syncsvc, for tests and for benchmarks.

Never keep data in these clusters. The package leaves no process and no file behind, and imports no other part of
syncsvc. Importing the package starts nothing.
"""

from syncsvc.sandbox.binary import find_mongod
from syncsvc.sandbox.errors import SandboxError
from syncsvc.sandbox.replica_set import ReplicaSet

__all__ = ["ReplicaSet", "SandboxError", "find_mongod"]
