"""Deletes the saved state of an earlier run."""

from __future__ import annotations

from syncsvc.metadata import Metadata
from syncsvc.saved.created_principals import PRINCIPALS
from syncsvc.saved.partitions import partitions_of
from syncsvc.saved.registry import collections_of
from syncsvc.saved.repairs import REPAIRS
from syncsvc.saved.rows import Rows
from syncsvc.saved.spool import SPOOL
from syncsvc.saved.views import VIEWS
from verifier.cluster.writer import ClusterWriter
from verifier.compare.check_reader import CHECK
from verifier.runtime.tasks import StopToken


def forget_earlier(metadata: Metadata, writer: ClusterWriter, stop: StopToken) -> None:
    """Delete the saved state of an earlier run, so that a new run does not continue the earlier copy or check.

    This deletes the saved registries, partitions, lists of created views and principals, record of the check, list of
    repairs, and event spool. Raises the driver's errors.
    """
    for reversals in range(2):
        for name in (collections_of(reversals), partitions_of(reversals)):
            Rows(metadata, writer, name, stop).delete_all({})
    for name in (VIEWS, PRINCIPALS, CHECK, REPAIRS, SPOOL):
        Rows(metadata, writer, name, stop).delete_all({})
