"""Blocks and unblocks user writes on a cluster (`setUserWriteBlockMode`)."""

from __future__ import annotations

from verifier.cluster.writer import ClusterWriter


def set_write_block(writer: ClusterWriter, blocked: bool) -> None:
    """Repeating it is fine. Raises the driver's errors."""
    writer.administer({"setUserWriteBlockMode": 1, "global": blocked})
