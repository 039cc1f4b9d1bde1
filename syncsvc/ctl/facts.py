"""Selects the facts about a sync or a check that `syncctl` shows. The functions here have no side effects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from syncsvc.ctl.advice import (
    NOTHING_LISTED,
    Copy,
    compared_of,
    copy_of,
    obstacles,
    other_coordinator,
)
from syncsvc.ctl.client import Document
from syncsvc.ctl.rates import Rates
from syncsvc.ctl.text import count, duration, percent, share, size

_STYLES = {
    "RUNNING": "bold green",
    "COMMITTED": "bold green",
    "FAILED": "bold red",
    "PAUSED": "bold yellow",
}
_WARNING = "yellow"
_UNKNOWN_OPLOG = "not checked yet"
# The states in which a verification that has no figures yet still begins, or will begin after a resume.
_VERIFIES_LATER = ("RUNNING", "PAUSED", "REVERSING")


@dataclass(frozen=True)
class Fact:
    """A label and a text to show; a `fraction` (0 to 1) is shown before the text, as a progress bar or a percentage.

    A fact with `is_detail` is left out if all facts are shown on one line. `style` is a style of the package rich.
    """

    label: str
    text: str
    fraction: float | None = None
    style: str = ""
    is_detail: bool = False


def one_line(facts: Iterable[Fact]) -> str:
    """Return the facts as one line for logs. Details, and facts whose `fraction` is 1, are left out."""
    first, *others = [fact for fact in facts if not fact.is_detail and fact.fraction != 1]
    return "; ".join([first.text, *map(_brief, others)])


def _brief(fact: Fact) -> str:
    share = "" if fact.fraction is None else f" {percent(fact.fraction)},"
    return f"{fact.label}:{share} {fact.text.rstrip('.')}"


def sync_facts(progress: Document, rates: Rates) -> list[Fact]:
    """Return the facts about a sync. Unknown rates are left out."""
    state, info, stage = progress["state"], progress.get("info"), progress.get("ceaStage")
    phase = [each for each in (info, stage) if each and state != "COMMITTED"]
    facts = [Fact("state", ", ".join([state, *phase]), style=_STYLES.get(state, "bold"))]
    if progress.get("error"):
        text = f"{progress['error']}: {progress['errorDescription']}"
        facts.append(Fact("error", text, style="red"))
    if mapping := progress.get("directionMapping"):
        direction = f"{mapping['Source']} -> {mapping['Destination']}"
        facts += [
            Fact("direction", direction, is_detail=True),
            *_amounts(progress, rates),
            *_promises(progress),
        ]
    facts += _standing(progress)
    if declared := progress.get("desiredState"):
        facts.append(Fact("declared", f"desiredState {declared}", is_detail=True))
    return facts + [Fact("WARNING", each, style=_WARNING) for each in progress.get("warnings", ())]


def _amounts(progress: Document, rates: Rates) -> Iterator[Fact]:
    """Yield the facts about the work of the sync, such as the copy and the verification, as far as they apply now."""
    copy = copy_of(progress)
    if copy.total is not None and progress["info"] != NOTHING_LISTED:
        done = None if copy.is_part else share(copy.copied, copy.total)
        yield Fact("copy", _copy_text(copy, rates), done)
    if building := progress.get("indexBuilding"):
        built, wanted = building["indexesBuilt"], building["totalIndexesToBuild"]
        yield Fact("indexes", f"{count(built)} of {count(wanted)} built", share(built, wanted))
    if progress.get("totalEventsApplied") or progress.get("lagTimeSeconds") is not None:
        yield Fact("changes", _changes_text(progress, rates))
    if verification := progress.get("verification"):
        begun = verification["destination"]["phase"] != "not started"
        if begun or progress["state"] != "RESETTING":
            yield _verification(verification, rates) if begun else _unverified(progress)
    if repairs := progress.get("repairs"):
        documents, definitions = count(repairs["documents"]), count(repairs["definitions"])
        state = ", in progress" if repairs["inProgress"] else ""
        yield Fact("repaired", f"{documents} documents, {definitions} definitions{state}")
    if principals := progress.get("usersAndRoles"):
        yield Fact(
            "users and roles", principals_text(principals), is_detail=not principals["copied"]
        )
    yield from _oplog(progress)


def principals_text(principals: Document) -> str:
    """Describe how many users and roles were copied; or say that the commit will copy them.

    `principals` is the field `usersAndRoles` of the progress.
    """
    if not principals["copied"]:
        return "the commit copies the users and roles"
    users, roles, equal = (count(principals[name]) for name in ("users", "roles", "equal"))
    kept = f", {count(principals['kept'])} kept as defined there" if principals["kept"] else ""
    return f"{users} users and {roles} roles copied, {equal} already equal on the destination{kept}"


def _oplog(progress: Document) -> Iterator[Fact]:
    left = progress.get("estimatedOplogTimeRemaining", _UNKNOWN_OPLOG)
    if left != _UNKNOWN_OPLOG and not progress["canWrite"]:
        text = f"the oplog of the source will keep the needed changes for {left}"
        urgent = left == "less than 15 minutes"
        yield Fact("oplog", text, style=_WARNING if urgent else "", is_detail=not urgent)
    if spool := progress.get("eventSpool"):
        used = f"{size(spool['bytes'])} of {size(spool['limitBytes'])}"
        yield Fact("event spool", ", ".join([used, *_spool_activity(progress["state"], spool)]))


def _spool_activity(state: str, spool: Document) -> Iterator[str]:
    if spool["active"]:
        yield (
            "full: no changes are saved"
            if spool["bytes"] >= spool["limitBytes"]
            else "saving changes"
        )
    elif state in ("RUNNING", "COMMITTING"):
        yield "being read"


def _copy_text(copy: Copy, rates: Rates) -> str:
    rate, left = rates.per_second("bytes"), rates.seconds_left("bytes", copy.total)
    if copy.is_part:
        text = f"{size(copy.copied)} by this instance, of {size(copy.total)} in all"
        return text if rate is None else f"{text}, {size(rate)}/s"
    text = f"{size(copy.copied)} of {size(copy.total)}"
    if rate is None or copy.total is None or copy.copied >= copy.total:
        return text
    return f"{text}, {size(rate)}/s, {duration(left)} left"


def _changes_text(progress: Document, rates: Rates) -> str:
    parts = [f"{count(progress['totalEventsApplied'])} applied"]
    if (rate := rates.per_second("events")) is not None:
        parts.append(f"{count(rate)}/s")
    if (lag := progress.get("lagTimeSeconds")) is not None:
        parts.append(f"lag {duration(lag)}")
    if left := progress.get("estimatedSecondsToCEACatchup"):
        parts.append(f"caught up in {duration(left)}")
    return ", ".join(parts)


def _verification(verification: Document, rates: Rates) -> Fact:
    compared, total = compared_of(verification)
    text = f"{count(compared)} of {count(total)} documents compared"
    rate, left = rates.per_second("compared"), rates.seconds_left("compared", total)
    if rate is not None and total is not None and compared < total:
        text += f", {count(rate)}/s, {duration(left)} left"
    return Fact("verification", text, share(compared, total))


def _unverified(progress: Document) -> Fact:
    """Return the fact that stands for the figures of the verification while the called process has none."""
    if coordinator := other_coordinator(progress):
        text = f"shown only by the coordinator {coordinator}"
    elif progress["state"] in _VERIFIES_LATER:
        text = "begins, or continues after a restart, when the destination has caught up"
    else:
        text = "this process has no figures; saved results are in the report: syncctl report"
    return Fact("verification", text, is_detail=True)


def _promises(progress: Document) -> Iterator[Fact]:
    """Yield the facts that say whether a commit is possible, and whether applications may write to the destination."""
    if progress["state"] == "RUNNING":
        missing = obstacles(progress)
        text = " ".join(["not possible yet.", *missing]) if missing else "possible"
        yield Fact("commit", text, style="" if missing else "green", is_detail=bool(missing))
    if progress["state"] in ("COMMITTING", "COMMITTED", "FAILED"):
        may = progress["canWrite"]
        text = (
            "applications may write to the destination"
            if may
            else "applications must not write to the synced collections on the destination"
        )
        yield Fact("destination", text, style="green" if may else "")


def _standing(progress: Document) -> Iterator[Fact]:
    if "role" in progress:
        lease = progress.get("lease")
        where = (
            f"; the active daemon, according to the lease: {lease['host']}, {lease['address']}"
            if lease
            else ""
        )
        yield Fact("role", f"{progress['role']}{where}")


def check_facts(progress: Document, rates: Rates) -> list[Fact]:
    """Return the facts about a check by the verifier. Unknown rates are left out."""
    facts = [Fact("phase", str(progress["phase"]), style="bold")]
    if progress["verdict"]:
        style = "bold green" if progress["verdict"] == "passed" else "bold red"
        facts.append(Fact("verdict", progress["verdict"].upper(), style=style))
    if progress["error"]:
        # The error contains the reasons of the verdict.
        facts.append(Fact("error", progress["error"], style="red"))
    else:
        facts += [Fact("reason", each) for each in progress["verdictReasons"]]
    if progress["generation"] is not None:
        facts += _generation(progress, rates)
    facts += [Fact("note", each) for each in progress["notes"]]
    return facts + [Fact("WARNING", each, style=_WARNING) for each in progress.get("warnings", ())]


def _comparison(progress: Document, rates: Rates) -> Fact:
    """Return the fact that shows the progress of generation 0, the first comparison of all selected documents."""
    if complete := progress["gen0Stats"]:
        # The total is not shown: it is an estimate, and unknown if no collection is compared.
        return Fact("compared", f"{count(complete['docsCompared'])} documents", 1.0)
    compared, total = (progress["generationStats"][name] for name in ("docsCompared", "totalDocs"))
    if total is None:
        return Fact("compared", f"{count(compared)} documents; the total is not known")
    text = f"{count(compared)} of {count(total)} documents"
    rate, left = rates.per_second("compared"), rates.seconds_left("compared", total)
    if rate is not None and compared < total:
        text += f", {count(rate)}/s, {duration(left)} left"
    return Fact("compared", text, share(compared, total))


def _generation(progress: Document, rates: Rates) -> Iterator[Fact]:
    first = progress["gen0Stats"] or progress["generationStats"]
    yield _comparison(progress, rates)
    rechecked = count(progress["totalRechecksDone"])
    yield Fact(
        "generation", f"{progress['generation']}; {rechecked} repeated comparisons of documents"
    )
    tasks = progress["verificationStatus"]
    done, failed = count(tasks["completedTasks"]), count(tasks["failedTasks"])
    collections = count(first["totalNamespaces"])
    text = (
        f"{done} of {count(tasks['totalTasks'])} of this generation are complete without differences, {failed} found "
        f"differences or could not be completed; {collections} collections in all"
    )
    yield Fact("tasks", text)
    if progress["phase"] != "idle":
        off = progress["writesOff"]
        yield Fact(
            "writes",
            (
                "off"
                if off
                else "on; the check continues until you stop all writes and send writes-off"
            ),
        )
