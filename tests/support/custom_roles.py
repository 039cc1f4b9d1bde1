"""The custom roles that the documentation recommends: the privileges in the tables of the code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

from syncsvc.preflight.privileges import needs_of_destination, needs_of_source
from syncsvc.schemas import StartSchema
from verifier.cluster.privileges import IDENTIFYING, NOTING, READING_BUCKETS, Need
from verifier.rules import NEEDS
from verifier.runtime.schemas import load

SIDES = ("source", "destination")
_NEEDS = {"source": needs_of_source, "destination": needs_of_destination}
_STATE = "__mdb_internal_syncsvc_verifier"

# A resource as the keys and values of its document, and an action on it.
Privilege = tuple[tuple[tuple[str, Any], ...], str]

_CLUSTER = (("cluster", True),)


def _collection(database: str, name: str) -> tuple[tuple[str, Any], ...]:
    return ("db", database), ("collection", name)


_EVERYWHERE = _collection("", "")
_BUCKETS = (("db", ""), ("system_buckets", ""))


class Extra(NamedTuple):
    """Optional privileges: their effect if they are missing, and the roles that have them."""

    without: str
    privileges: tuple[Privilege, ...]
    roles: tuple[str, ...]


_ANY = ("source", "destination", "verifier")
OPTIONAL = (
    Extra(
        "A commit and a check wait up to 10 seconds for the no-op that an idle cluster writes.",
        tuple((_CLUSTER, action) for action in NOTING.on_cluster),
        _ANY,
    ),
    Extra(
        "The version of the servers counts, even if their featureCompatibilityVersion is older.",
        ((_CLUSTER, "getParameter"),),
        _ANY,
    ),
    Extra(
        "The definitions are read collection by collection, which takes longer.",
        (
            (_collection("", "system.js"), "listCollections"),
            (_collection("", "system.js"), "listIndexes"),
            (_BUCKETS, "listCollections"),
        ),
        _ANY,
    ),
    Extra(
        "Limits on the queue and on the replication lag have no effect.",
        ((_CLUSTER, "replSetGetStatus"), (_CLUSTER, "serverStatus")),
        SIDES,
    ),
    Extra(
        "There is no warning before the oplog becomes too short, and a check always waits for ``graceSeconds``.",
        tuple((_collection("local", "oplog.rs"), action) for action in ("collStats", "find")),
        ("source", "verifier"),
    ),
    Extra(
        "The copy of a collection begins again if the server was restarted.",
        tuple(
            (_collection("local", name), "find")
            for name in ("replset.initialSyncId", "startup_log")
        ),
        ("source",),
    ),
    Extra(
        "The free disk space is not checked.",
        ((_collection("admin", ""), "dbStats"),),
        ("destination",),
    ),
)


def of_sync(side: str, sharded: bool = False, **options: Any) -> list[Privilege]:
    """Return the privileges that a sync with these start options needs on one side: "source" or "destination"."""
    asked = load(StartSchema(), {"source": "cluster0", "destination": "cluster1", **options})
    return _of((*_NEEDS[side](asked, True, sharded), *([] if sharded else [IDENTIFYING])))


def of_verifier() -> list[Privilege]:
    """Return the privileges that the verifier needs on both clusters."""
    return _of((*NEEDS, *READING_BUCKETS, IDENTIFYING))


def of_state() -> list[Privilege]:
    """Return the privileges that the verifier needs besides `of_verifier` on the cluster that keeps its state."""
    writing = ("createCollection", "createIndex", "dropCollection", "insert", "remove", "update")
    blocked = (_CLUSTER, "bypassWriteBlockingMode")
    return [*((_collection(_STATE, ""), action) for action in writing), blocked]


def _of(needs: Iterable[Need]) -> list[Privilege]:
    found = (
        privilege
        for need in needs
        for privilege in (
            *((_CLUSTER, action) for action in need.on_cluster),
            *((_EVERYWHERE, action) for action in need.on_collections),
            *((_BUCKETS, action) for action in need.on_buckets),
            *_on("config", need.on_config),
            *_on("admin", need.on_admin),
        )
    )
    return [*dict.fromkeys(found)]


def _on(database: str, actions: Iterable[tuple[str, tuple[str, ...]]]) -> Iterable[Privilege]:
    return (
        (_collection(database, name), action) for name, allowed in actions for action in allowed
    )


def creation(name: str, needed: Sequence[Privilege], optional: str = "") -> str:
    """Return the mongosh statement that creates a role with these privileges.

    If `optional` is not empty, the role also has the optional privileges of the role `optional`, after a comment.
    """
    rows = _rows(needed)
    if optional:
        more = [each for row in OPTIONAL if optional in row.roles for each in row.privileges]
        rows += ["    // optional", *_rows([each for each in more if each not in needed])]
    # A comma after the last element is allowed in JavaScript.
    return "\n".join(
        [
            f'db.getSiblingDB("admin").createRole({{role: "{name}", roles: [], privileges: [',
            *rows,
            "    ]})",
        ]
    )


def _rows(privileges: Iterable[Privilege]) -> list[str]:
    actions: dict[Any, list[str]] = {}
    for resource, action in privileges:
        actions.setdefault(resource, []).append(action)
    return [line for resource in actions for line in _row(resource, sorted(actions[resource]))]


def _row(resource: Iterable[tuple[str, Any]], actions: Iterable[str]) -> Iterable[str]:
    fields = ", ".join(f"{key}: {_literal(value)}" for key, value in resource)
    text = f"{{resource: {{{fields}}}, actions: [{', '.join(map(_literal, actions))}]}},"
    return wrap(text, 110, initial_indent=" " * 4, subsequent_indent=" " * 8)


def _literal(value: Any) -> str:
    return "true" if value is True else f'"{value}"'


def of_sync_as_rst() -> str:
    """Return the roles of a sync between replica sets with the default options, and what other syncs need besides."""
    statements = [
        f"// on the {side}\n{creation(f'sync{side.title()}', of_sync(side), side)}"
        for side in SIDES
    ]
    blocking = "sourceAndDestination"
    changes = [
        (
            "``enableUserWriteBlocking: sourceAndDestination``",
            "source",
            of_sync("source", enableUserWriteBlocking=blocking),
        ),
        ("A sharded source", "source", of_sync("source", sharded=True)),
        ("A sharded destination", "destination", of_sync("destination", sharded=True)),
    ]
    return (
        f"{_block(statements)}\n"
        "Without the optional privileges:\n\n"
        f"{_effects(SIDES)}\n"
        "Other syncs also need:\n\n"
        + "".join(f"{what}\n    {_added(side, found)}\n" for what, side, found in changes)
        + "``reversible``\n    on both clusters, the privileges of both roles.\n"
    )


def of_verifier_as_rst() -> str:
    """Return the roles of the verifier."""
    statements = [
        f"// on both clusters\n{creation('verifierReader', of_verifier(), 'verifier')}",
        "// on the destination, or on the cluster of --metaURI, together with verifierReader\n"
        f"{creation('verifierState', of_state())}",
    ]
    return _block(statements)


def _block(statements: Iterable[str]) -> str:
    lines = [line for each in statements for line in (*each.splitlines(), "")]
    text = "".join(f"    {line}".rstrip() + "\n" for line in lines)
    return f".. code-block:: javascript\n\n{text}"


def _effects(roles: Iterable[str]) -> str:
    """Render the effect of each missing optional privilege of these roles as a definition list."""
    return "".join(
        f"{_shown(row.privileges)}\n    {row.without}\n"
        for row in OPTIONAL
        if {*roles} & {*row.roles}
    )


def _added(side: str, found: Sequence[Privilege]) -> str:
    usual = of_sync(side)
    return f"on the {side}, {_shown([each for each in found if each not in usual])}."


def _shown(privileges: Iterable[Privilege]) -> str:
    """Return privileges as text, grouped by their resource."""
    actions: dict[Any, list[str]] = {}
    for resource, action in privileges:
        actions.setdefault(_named(dict(resource)), []).append(f"``{action}``")
    return "; ".join(f"{', '.join(found)} on {name}" for name, found in actions.items())


def _named(resource: dict[str, Any]) -> str:
    match resource:
        case {"cluster": True}:
            return "the cluster"
        case {"system_buckets": _}:
            return "the buckets of time-series collections"
        case {"db": "", "collection": ""}:
            return "all collections"
        case {"db": "", "collection": name}:
            return f"all ``{name}``"
        case {"db": database, "collection": ""}:
            return f"the database ``{database}``"
        case _:
            return f"``{resource['db']}.{resource['collection']}``"
