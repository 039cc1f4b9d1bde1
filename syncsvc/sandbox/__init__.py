"""Throw-away local clusters on loopback, for trying the product, for tests and for benchmarks.

Never keep data in them. The package leaves no process and no file behind, and does not import the product. Importing it
starts nothing.
"""

from syncsvc.sandbox.binary import find_mongod
from syncsvc.sandbox.errors import SandboxError
from syncsvc.sandbox.replica_set import ReplicaSet

__all__ = ["ReplicaSet", "SandboxError", "find_mongod"]
