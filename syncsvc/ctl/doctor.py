"""The checks of `syncctl doctor`, which examines a daemon and its clusters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from time import monotonic

from syncsvc.ctl.client import Answer, Client, ClientError, Document
from syncsvc.ctl.exits import Exit
from syncsvc.ctl.text import duration

OK, WARNING, PROBLEM, SKIPPED = "ok", "warning", "problem", "skipped"
# A smaller difference of the clocks is ignored, because the header Date has whole seconds, and an answer takes time.
_CLOCK_SECONDS = 5.0
_SLOW_PING_MS = 100


@dataclass(frozen=True)
class Check:
    """One check: its name, such as "clock", its result (OK, WARNING, PROBLEM or SKIPPED), and a text about it."""

    name: str
    result: str
    text: str


def examine(api: Client, start: Document) -> Iterator[Check]:
    """Check the daemon's API, then the clusters as the daemon sees them, and yield the results.

    `start` is the body of the start request that the preflight checks. Raises ClientError if the request for the
    progress or for the version fails, or if the preflight gets no answer or one that cannot be read.
    """
    began = monotonic()
    progress = api.progress()
    yield Check("API", OK, f"{api.url} answers in {1000 * (monotonic() - began):.0f} ms.")
    yield from _version_and_clock(api)
    yield _ready(api)
    yield from _standing(progress)
    pings = {cluster: progress.get(cluster) for cluster in ("source", "destination")}
    yield from (_ping(cluster, ping) for cluster, ping in pings.items() if ping is not None)
    yield _state(progress)
    yield from (Check("sync", WARNING, each) for each in progress.get("warnings", ()))
    yield from _preflight(api, progress, start)


def has_problems(checks: Iterable[Check]) -> bool:
    return any(each.result == PROBLEM for each in checks)


def _version_and_clock(api: Client) -> Iterator[Check]:
    answer = api.get("openapi.json")
    theirs, ours = answer.body["info"]["version"], version("syncsvc")
    if theirs == ours:
        yield Check("version", OK, f"Daemon and syncctl have version {ours}.")
    else:
        text = (
            f"The daemon has version {theirs}, syncctl {ours}. Commands of this syncctl may fail: use the syncctl "
            "that belongs to the daemon."
        )
        yield Check("version", WARNING, text)
    yield _clock(answer)


def _clock(answer: Answer) -> Check:
    try:
        theirs = parsedate_to_datetime(answer.headers.get("Date", ""))
    except ValueError:
        return Check(
            "clock",
            SKIPPED,
            "The answer of the daemon has no valid Date header, so the clocks were not compared.",
        )
    apart = abs(datetime.now(UTC).timestamp() - theirs.timestamp())
    if apart <= _CLOCK_SECONDS:
        return Check("clock", OK, "The clocks of this machine and of the daemon's host agree.")
    return Check(
        "clock",
        WARNING,
        f"The clocks of this machine and of the daemon's host are {duration(apart)} apart. The data is synced "
        "correctly anyway, but the time windows of limits follow the daemon's clock, and logs are hard to compare: "
        "check NTP.",
    )


def _ready(api: Client) -> Check:
    try:
        api.get("/readyz")
    except ClientError as error:
        result = SKIPPED if error.error == "NotFound" else PROBLEM
        return Check("ready", result, error.description)
    return Check("ready", OK, "The daemon has started, and both clusters answer.")


def _standing(progress: Document) -> Iterator[Check]:
    if progress.get("role") == "standby":
        lease = progress.get("lease")
        where = f"{lease['host']}, {lease['address']}" if lease else "not known"
        yield Check(
            "role",
            OK,
            f"This daemon is a standby. The active daemon, according to the lease: {where}.",
        )


def _ping(cluster: str, ping: Document) -> Check:
    """Judge the last ping of a cluster. `pingLatencyMs` is -1 if the ping failed, and absent before the first ping."""
    milliseconds = ping.get("pingLatencyMs")
    if milliseconds is None:
        return Check(cluster, WARNING, "The cluster has not been pinged yet.")
    if milliseconds < 0:
        return Check(
            cluster,
            PROBLEM,
            "The cluster did not answer the last ping. Check its servers, and the network between them and the daemon.",
        )
    text = f"The cluster answered the last ping in {milliseconds} ms."
    if milliseconds <= _SLOW_PING_MS:
        return Check(cluster, OK, text)
    slow = "Such a latency slows a sync down: check the network, and the load of the cluster."
    return Check(cluster, WARNING, f"{text} {slow}")


def _state(progress: Document) -> Check:
    if progress["state"] == "FAILED":
        text = f"The sync has failed. {progress['error']}: {progress['errorDescription']}"
        return Check("sync", PROBLEM, text)
    info = f", {progress['info']}" if progress.get("info") else ""
    return Check("sync", OK, f"{progress['state']}{info}.")


def _preflight(api: Client, progress: Document, start: Document) -> Iterator[Check]:
    """Check privileges, versions, oplog, disk and memory with a preflight, and yield the results.

    If the state of the sync is not IDLE, or the daemon is a standby, yield only one check with the result SKIPPED.
    `start` is the body of the preflight request. Raises ClientError if the daemon does not answer, or its answer
    cannot be read.
    """
    if progress["state"] != "IDLE" or progress.get("role") == "standby":
        yield Check(
            "preflight",
            SKIPPED,
            "The preflight runs only before a start (state IDLE), on the active daemon.",
        )
        return
    try:
        found = api.post("preflight", start).body
    except ClientError as error:
        if error.status is Exit.UNREACHABLE:
            raise
        yield Check("preflight", PROBLEM, f"{error.error}: {error.description}")
        return
    for each in found["violations"]:
        yield Check("preflight", PROBLEM, f"{each['error']}: {each['errorDescription']}")
    for text in found["warnings"]:
        yield Check("preflight", WARNING, text)
    if not found["violations"]:
        text = "All checks of the preflight permit a start."
        yield Check("preflight", OK, text)
    yield _oplog(found["estimates"], start.get("eventSpool") != "never")


def _oplog(estimates: Document, spooled: bool) -> Check:
    """Judge the length of the oplog. `spooled` says whether the event spool may save changes on the destination."""
    window, copy = estimates["oplogWindowSeconds"], estimates["copySeconds"]
    if window is None:
        text = (
            "It is unknown for how long the oplog of the source keeps changes. If a warning of the preflight says why, "
            "follow it; otherwise, check the oplog yourself (rs.printReplicationInfo())."
        )
        return Check("oplog", SKIPPED, text)
    keeps = f"The oplog of the source keeps changes for {duration(window)}"
    if copy is None:
        return Check("oplog", OK, f"{keeps}. It is unknown how long the copy takes.")
    if window >= copy:
        return Check(
            "oplog", OK, f"{keeps}, which is enough for the copy (about {duration(copy)})."
        )
    short = f"{keeps}, but the copy takes about {duration(copy)}."
    if spooled:
        return Check(
            "oplog",
            OK,
            f"{short} If necessary, the event spool saves the changes on the destination.",
        )
    return Check(
        "oplog",
        WARNING,
        f"{short} Set eventSpool to auto, or enlarge the oplog before the start (replSetResizeOplog).",
    )
