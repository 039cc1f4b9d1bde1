"""Compares the users and custom roles of two clusters, and decides which are copied.

Documents of `admin.system.users` and `admin.system.roles` are copied as they are. They are equal if they differ only in
the ID that each cluster gives its users (`userId`), in the order of roles, privileges, credentials or restrictions, or
in empty restrictions. The functions here have no side effects.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from graphlib import TopologicalSorter
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from syncsvc import errors
from syncsvc.options import OnConflict, UsersAndRoles
from verifier.cluster import rawbson
from verifier.runtime.errors import Violation

# The version of the documents of users and roles (`authSchema`) in every server since MongoDB 4.0.
AUTH_SCHEMA = 5
# The user as which the servers of a cluster log in to each other.
_INTERNAL_USER = "__system"
# The fields that do not count for equality: the first is derived from other fields, the second differs between
# clusters.
_IGNORED = ("_id", "userId")
# The database whose built-in roles differ from those of all other databases.
_ADMIN = "admin"
# The maximum number of principals that a message lists.
_SHOWN = 10


class Kind(Enum):
    USER = "user"
    ROLE = "role"


class Outcome(Enum):
    """The effect of a copy on a principal. The API shows these values.

    COPY: the principal is copied. EQUAL: the destination already has it. KEPT: the destination has another definition,
    and keeps it. OWN: not copied, because this process or the servers themselves log in as this user.

    If any principal has one of the other three outcomes, the whole copy is refused. CONFLICT: the destination has
    another definition. MISSING: a selected principal has or inherits this role, which is neither copied nor on the
    destination. SURPLUS: a selected principal has or inherits this role, but only the destination has a definition of
    it.
    """

    COPY = "copy"
    EQUAL = "equal"
    KEPT = "kept"
    CONFLICT = "conflict"
    MISSING = "missing"
    SURPLUS = "surplus"
    OWN = "own"


@dataclass(frozen=True, order=True)
class Identity:
    """The kind, database and name of a user or role (custom or built-in), which identify it in a cluster."""

    # "role" or "user", so that roles are sorted first.
    kind: str
    database: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}@{self.database}"


@dataclass(frozen=True)
class Principal:
    """A user or custom role. `raw` is the document that defines it; the document of a user holds credentials."""

    kind: Kind
    # Not shown by repr(), so that no log contains credentials.
    raw: bytes = field(repr=False)

    @cached_property
    def _fields(self) -> Mapping[str, Any]:
        return RawBSONDocument(self.raw, rawbson.RAW_LENIENT)

    @cached_property
    def identity(self) -> Identity:
        return Identity(self.kind.value, self._fields["db"], self._fields[self.kind.value])

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash that equal principals share. It reveals no credentials, because these are salted."""
        compared = {name: _ordered(name, value) for name, value in self._fields.items()}
        counted = {name: compared[name] for name in sorted(compared) if _counts(name, compared)}
        return hashlib.sha256(bson.encode(counted)).hexdigest()

    @cached_property
    def roles(self) -> frozenset[Identity]:
        """Return the roles that are granted directly to this principal, without inherited roles."""
        return frozenset(
            Identity(Kind.ROLE.value, each["db"], each["role"])
            for each in self._fields.get("roles", ())
        )

    @cached_property
    def databases(self) -> frozenset[str]:
        """Return the databases of the privileges of this principal, and of the roles that are granted to it directly.

        Privileges on all databases are not included.
        """
        resources = (each["resource"] for each in self._fields.get("privileges", ()))
        own = (each["db"] for each in resources if each.get("db"))
        return frozenset([*own, *(each.database for each in self.roles)])


def _counts(name: str, fields: Mapping[str, Any]) -> bool:
    """Return whether a field counts for equality. An empty list of restrictions is the same as none."""
    if name == "authenticationRestrictions":
        return bool(fields[name])
    return name not in _IGNORED


def _ordered(name: str, value: Any) -> Any:
    """Return a form of a field's value that ignores the order of roles, privileges, credentials and restrictions.

    Use the result only to compare values: roles become pairs, and privileges become BSON.
    """
    if name == "credentials":
        return {each: value[each] for each in sorted(value)}
    if name == "roles":
        return sorted((each["db"], each["role"]) for each in value)
    if name == "privileges":
        return sorted(bson.encode(_privilege(each)) for each in value)
    if name == "authenticationRestrictions":
        return sorted(map(_restriction, value), key=bson.encode)
    return value


def _restriction(restriction: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {name: sorted(restriction[name]) for name in sorted(restriction)}


def _privilege(privilege: Mapping[str, Any]) -> dict[str, Any]:
    resource = privilege["resource"]
    return {
        "resource": {name: resource[name] for name in sorted(resource)},
        "actions": sorted(set(privilege["actions"])),
    }


@dataclass(frozen=True)
class Listing:
    """The principals of a cluster. `auth_schema` is the version of the documents that define them.

    `own` are the users as which this process logs in to the cluster. `built_in` are the built-in roles of the database
    admin and, with an empty database name, those of every other database; it is empty if this process may not read
    them, which is usual on a source.
    """

    principals: tuple[Principal, ...] = ()
    auth_schema: int = AUTH_SCHEMA
    own: frozenset[Identity] = frozenset()
    built_in: frozenset[Identity] = frozenset()

    @cached_property
    def by_identity(self) -> Mapping[Identity, Principal]:
        return {each.identity: each for each in self.principals}

    def builds_in(self, identity: Identity) -> bool:
        database = _ADMIN if identity.database == _ADMIN else ""
        return replace(identity, database=database) in self.built_in

    def without(self, principals: Iterable[Principal]) -> Listing:
        dropped = {each.identity for each in principals}
        kept = tuple(each for each in self.principals if each.identity not in dropped)
        return replace(self, principals=kept)


@dataclass(frozen=True)
class Finding:
    """The outcome of the copy for a user or role of the source, or for a role that such a user or role has or inherits.

    `detail` is the reason; empty if none is needed.
    """

    identity: Identity
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True)
class PrincipalCounts:
    """The numbers of users and roles that are copied, and of principals that are equal, kept, or prevent the copy."""

    users: int = 0
    roles: int = 0
    equal: int = 0
    kept: int = 0
    conflicts: int = 0


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`: the principals to copy, and the sorted findings about all compared principals."""

    copied: tuple[Principal, ...] = ()
    findings: tuple[Finding, ...] = ()
    # The authSchema versions of the source and of the destination.
    auth_schemas: tuple[int, int] = (AUTH_SCHEMA, AUTH_SCHEMA)
    # The databases of the option `databases` in which the source has no principals.
    empty: tuple[str, ...] = ()

    def having(self, *outcomes: Outcome) -> list[Finding]:
        return [each for each in self.findings if each.outcome in outcomes]

    @property
    def counts(self) -> PrincipalCounts:
        kinds = Counter(each.kind for each in self.copied)
        outcomes = Counter(each.outcome for each in self.findings)
        return PrincipalCounts(
            users=kinds[Kind.USER],
            roles=kinds[Kind.ROLE],
            equal=outcomes[Outcome.EQUAL],
            kept=outcomes[Outcome.KEPT],
            conflicts=sum(outcomes[each] for each in _REFUSED),
        )


_REFUSED = (Outcome.CONFLICT, Outcome.MISSING, Outcome.SURPLUS)


def compare(options: UsersAndRoles, source: Listing, destination: Listing) -> Comparison:
    """Determine the outcome of a copy with these options for the selected principals of the source and for their roles.

    The roles that a selected principal has, directly or inherited, are compared even if the option `databases` excludes
    them: otherwise, a user could have other rights on the destination.
    """
    chosen = [
        each
        for each in source.principals
        if not options.databases or each.identity.database in options.databases
    ]
    own = source.own | destination.own
    selected = [each for each in chosen if not _is_own(each.identity, own)]
    judged = {each.identity: _judged(each, True, options, destination) for each in selected}
    for role, holder in _roles_held(selected, options, source, destination).items():
        if role not in judged and (
            finding := _role_judged(role, holder, options, source, destination)
        ):
            judged[role] = finding
    omitted = (each.identity for each in chosen if _is_own(each.identity, own))
    findings = [*judged.values(), *(Finding(each, Outcome.OWN) for each in omitted)]
    return Comparison(
        copied=tuple(each for each in selected if judged[each.identity].outcome is Outcome.COPY),
        findings=tuple(sorted(findings, key=lambda each: each.identity)),
        auth_schemas=(source.auth_schema, destination.auth_schema),
        empty=tuple(sorted({*options.databases} - {each.identity.database for each in chosen})),
    )


def _is_own(identity: Identity, own: Collection[Identity]) -> bool:
    return identity in own or (identity.kind, identity.name) == (Kind.USER.value, _INTERNAL_USER)


def _judged(
    principal: Principal, copied: bool, options: UsersAndRoles, destination: Listing
) -> Finding:
    """Compare a principal with the one of the same identity on the destination.

    If the destination has none, the outcome is COPY if the principal is selected for the copy (`copied`), else MISSING.
    """
    identity = principal.identity
    different = Outcome.KEPT if options.on_conflict is OnConflict.SKIP else Outcome.CONFLICT
    if destination.builds_in(identity):
        # Servers store such a custom role without an error, but give its holders the rights of the built-in role.
        shadowed = "the destination has a built-in role of this name: rename the role on the source"
        return Finding(identity, different, shadowed)
    found = destination.by_identity.get(identity)
    if found is None:
        return Finding(identity, Outcome.COPY if copied else Outcome.MISSING)
    if found.fingerprint == principal.fingerprint:
        return Finding(identity, Outcome.EQUAL)
    return Finding(identity, different, "the definition on the destination differs")


def _role_judged(
    role: Identity,
    holder: Identity,
    options: UsersAndRoles,
    source: Listing,
    destination: Listing,
) -> Finding | None:
    """Judge a role that the principal `holder` has, but that is not selected for the copy.

    Return None if neither cluster stores the role, as for a built-in role: servers do not store these. So a role that
    only the destination stores is a custom role that the source does not have.
    """
    stored = source.by_identity.get(role)
    if stored is not None:
        finding = _judged(stored, False, options, destination)
        missing = finding.outcome is Outcome.MISSING
        return Finding(role, finding.outcome, f"the {holder} has it" if missing else finding.detail)
    if role in destination.by_identity:
        return Finding(role, Outcome.SURPLUS, f"the {holder} names it")
    return None


def _roles_held(
    principals: Iterable[Principal],
    options: UsersAndRoles,
    source: Listing,
    destination: Listing,
) -> dict[Identity, Identity]:
    """Return all roles that the principals have, directly or inherited, each with one principal that has it.

    A principal with the outcome KEPT is not copied, so the roles that it has on the source do not count.
    """
    held: dict[Identity, Identity] = {}
    waiting = list(principals)
    while waiting:
        holder = waiting.pop()
        if _judged(holder, True, options, destination).outcome is Outcome.KEPT:
            continue
        for role in sorted(holder.roles - held.keys()):
            held[role] = holder.identity
            if (stored := source.by_identity.get(role)) is not None:
                waiting.append(stored)
    return held


def violations(comparison: Comparison) -> Iterator[Violation]:
    """Yield a violation for each reason why the principals cannot be copied."""
    for side, version in zip(("source", "destination"), comparison.auth_schemas, strict=True):
        if version != AUTH_SCHEMA:
            yield errors.AUTH_SCHEMA_UNSUPPORTED, (
                f"The authSchema of the {side} has version {version}, but a copy of users and roles needs version "
                f"{AUTH_SCHEMA}."
            )
    if found := comparison.having(Outcome.CONFLICT):
        yield errors.USER_OR_ROLE_EXISTS, (
            f"The destination has other definitions of these users and roles: {enumerated(found)}."
        )
    if found := comparison.having(Outcome.MISSING):
        yield errors.ROLE_MISSING, (
            "Users or roles selected for the copy have these roles, which are not selected and do not exist on the "
            "destination: "
            f"{enumerated(found)}."
        )
    if found := comparison.having(Outcome.SURPLUS):
        yield errors.USER_OR_ROLE_EXISTS, (
            "Users or roles selected for the copy have these roles, which exist on the destination but not on the "
            "source: "
            f"{enumerated(found)}."
        )


def warnings(comparison: Comparison, synced: Collection[str] | None) -> Iterator[str]:
    """Yield warnings for the operator before users and roles are copied.

    `synced` are the databases of the collections and views that a namespace filter selects; None without a filter, or
    if they are unknown.
    """
    if found := comparison.having(Outcome.KEPT):
        yield (
            "The destination has other definitions of these users and roles, which are not changed (onConflict is "
            f"skip): {enumerated(found)}. A user with such a role gets the privileges that the role has on the "
            "destination."
        )
    if found := comparison.having(Outcome.OWN):
        yield (
            "These users are not copied, because this process or the servers themselves log in as these users: "
            f"{enumerated(found)}. If applications also log in as them, create separate users for the applications."
        )
    if comparison.empty:
        yield (
            "The source has no users or custom roles in these databases of usersAndRoles.databases: "
            f"{', '.join(comparison.empty)}. Check the names."
        )
    if synced is not None:
        yield from _warnings_of_filter(comparison.copied, synced)


def _warnings_of_filter(copied: Iterable[Principal], synced: Collection[str]) -> Iterator[str]:
    outside = [
        Finding(each.identity, Outcome.COPY, f"on {', '.join(sorted(databases))}")
        for each in copied
        if (databases := each.databases - {*synced, "admin", "config", "local"})
    ]
    if outside:
        yield (
            "These users and roles are copied with all their privileges, including privileges on databases that the "
            f"sync does not copy: {enumerated(outside)}. Check that users may have these privileges on the destination."
        )


def enumerated(findings: Sequence[Finding]) -> str:
    """Enumerate the principals and details of the first findings, and give the number of further findings."""
    names = [
        f"{each.identity} ({each.detail})" if each.detail else str(each.identity)
        for each in findings
    ]
    more = len(names) - _SHOWN
    return ", ".join([*names[:_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def described(counts: PrincipalCounts) -> str:
    """Describe a copy of principals for logs and reports, such as "copied 2 users and 1 role; 0 equal"."""
    copied = f"copied {_amount(counts.users, 'user')} and {_amount(counts.roles, 'role')}"
    kept = (
        f"; {counts.kept} different on the destination, left unchanged there" if counts.kept else ""
    )
    return f"{copied}; {counts.equal} equal{kept}"


def _amount(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def outdated(created: Collection[Principal], wanted: Iterable[Principal]) -> list[Principal]:
    """Return the principals in `created` that must be dropped and created again, or only dropped, to be as in `wanted`.

    These are the principals that differ, and all that have or inherit a role that differs: a server that drops a role
    also takes it from all principals that have it.
    """
    documents = {each.identity: each.raw for each in wanted}
    dropped = {each.identity for each in created if documents.get(each.identity) != each.raw}
    while more := {each.identity for each in created if each.roles & dropped} - dropped:
        dropped |= more
    return [each for each in created if each.identity in dropped]


def in_order_of_removal(principals: Iterable[Principal]) -> list[Principal]:
    """Return the principals in an order in which each comes before the roles that it has.

    Otherwise, dropping a role would change the principals that have it, and these would then look changed by users.
    """
    by_identity = {each.identity: each for each in principals}
    order = TopologicalSorter(
        {name: each.roles & by_identity.keys() for name, each in by_identity.items()}
    )
    return [by_identity[name] for name in reversed([*order.static_order()])]


def removable(created: Iterable[Principal], listing: Listing) -> list[Principal]:
    """Return the principals in `created` that can be dropped from the cluster of `listing`.

    Leave out the users as which this process logs in to the cluster, and roles that principals outside the result have
    or inherit: a server that drops a role also takes it from all principals that have it.
    """
    by_identity = {each.identity: each for each in created if each.identity not in listing.own}
    waiting = [each for each in listing.principals if each.identity not in by_identity]
    while waiting:
        for role in waiting.pop().roles & by_identity.keys():
            waiting.append(by_identity.pop(role))
    return [*by_identity.values()]
