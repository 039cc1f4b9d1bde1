"""Asks a server which of the features in the module `features` it supports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pymongo.errors import OperationFailure

from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.cluster.features import FEATURES, SPLIT_EVENTS, Feature, Probe, Shape, Version


def compatibility(client: Client) -> tuple[int, int] | None:
    """Return the featureCompatibilityVersion of the cluster, such as (6, 0).

    Return None if the server refuses to return it, for example because the user lacks the privilege, or if there is
    none. After an upgrade, a server has only the features of its older release until this version is raised. Raises the
    driver's transient errors.
    """
    try:
        if client.is_mongos:
            query = {"_id": "featureCompatibilityVersion"}
            found = client.admin["system.version"].find_one(query)
            text = None if found is None else found["version"]
        else:
            reply = client.admin.command({"getParameter": 1, "featureCompatibilityVersion": 1})
            text = reply.get("featureCompatibilityVersion", {}).get("version")
    except OperationFailure as error:
        if failures.is_transient(error):
            raise
        return None
    if text is None:
        return None
    release, _, minor = str(text).partition(".")
    return int(release), int(minor)


def refused(client: Client, version: Version) -> frozenset[str]:
    """Return the names of the features that the cluster refuses although its version promises them.

    Only features whose `probe` is COMMANDS or STREAM are checked. A feature that the user has no privilege to try
    counts as supported. Raises the driver's errors.
    """
    commands = client.admin.command("listCommands")["commands"]
    shapes = (Shape.ANY, Shape.SHARDED if client.is_mongos else Shape.REPLICA_SET)
    expected = [each for each in FEATURES if each.promised(version) and each.shape in shapes]
    lacked = {
        each.name for each in expected if each.probe is Probe.COMMANDS and each.name not in commands
    }
    streamed = [each for each in expected if each.probe is Probe.STREAM]
    if not _streams(client, streamed):
        lacked |= {each.name for each in streamed if not _streams(client, [each])}
    return frozenset(lacked)


def _streams(client: Client, features: Iterable[Feature]) -> bool:
    """Return False if the cluster refuses to open a change stream with these features; otherwise, return True.

    Also return True if the attempt fails for another reason, such as a missing privilege. Raises the driver's transient
    errors.
    """
    stage: dict[str, Any] = {"allChangesForCluster": True}
    pipeline: list[dict[str, Any]] = [{"$changeStream": stage}]
    for each in features:
        if each is SPLIT_EVENTS:
            pipeline.append({each.name: {}})
        else:
            stage[each.name] = True
    try:
        client.admin.aggregate(pipeline, batchSize=0).close()
    except OperationFailure as error:
        if failures.is_transient(error):
            raise
        # A missing privilege or an unexpected error says nothing about the features; a later call reports it.
        return not failures.is_refusal(error)
    return True
