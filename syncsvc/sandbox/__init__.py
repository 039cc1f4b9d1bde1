"""Throw-away local clusters on loopback: for trying the product out, for tests and benchmarks.

They must not be used for data anyone wants to keep, must leave no process and no file behind,
and must not import the product. Importing this package starts nothing.
"""

from syncsvc.sandbox.binary import find_mongod
from syncsvc.sandbox.errors import SandboxError
from syncsvc.sandbox.replica_set import ReplicaSet

__all__ = ["ReplicaSet", "SandboxError", "find_mongod"]
