"""The built-in roles that the documentation recommends for each kind of sync."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

READER = ("readAnyDatabase", "clusterMonitor")
WRITER = ("readWriteAnyDatabase", "dbAdminAnyDatabase", "clusterMonitor")
# Additional roles for a sharded cluster.
SHARDED_READER, SHARDED_WRITER = "backup", "clusterManager"


@dataclass(frozen=True)
class Use:
    """One row of the table of roles: start options, and the roles that such a sync needs on each cluster."""

    name: str
    source: tuple[str, ...]
    destination: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def on_sharded(self) -> Use:
        """Return a copy of this row with the additional roles for sharded clusters."""
        more = SHARDED_WRITER if "reversible" in self.options else SHARDED_READER
        source = tuple(dict.fromkeys((*self.source, more)))
        return replace(self, source=source, destination=(*self.destination, SHARDED_WRITER))

    @property
    def sides(self) -> dict[str, tuple[str, ...]]:
        return {"source": self.source, "destination": self.destination}


USES = (
    Use("``none``", READER, WRITER, {"enableUserWriteBlocking": "none"}),
    Use("``destinationOnly`` (default)", READER, (*WRITER, "restore")),
    Use(
        "``sourceAndDestination``",
        (*READER, "backup"),
        (*WRITER, "restore"),
        {"enableUserWriteBlocking": "sourceAndDestination"},
    ),
    Use(
        "``sourceAndDestination``, and ``reversible``",
        (*WRITER, "restore"),
        (*WRITER, "restore"),
        {"enableUserWriteBlocking": "sourceAndDestination", "reversible": True},
    ),
)


def as_rst() -> str:
    """Return the table of roles as a definition list in reStructuredText, with an example for the default options."""
    return (
        "".join(
            f"{use.name}\n"
            f"    on the source {_listed(use.source)};\n"
            f"    on the destination {_listed(use.destination)}.\n"
            for use in USES
        )
        + f"\nA sharded cluster needs one more role: ``{SHARDED_READER}`` as the source, ``{SHARDED_WRITER}`` as the "
        "destination, and as\nthe source of a sync with ``reversible``.\n\n" + _example()
    )


def _example() -> str:
    """Return the commands that create the users of a sync between replica sets with the default options."""
    (default,) = (use for use in USES if not use.options)
    return (
        "For example, these commands in ``mongosh`` create the users of a sync between replica sets with the default "
        "options:\n\n.. code-block:: javascript\n\n"
    ) + "\n".join(_creation(side, roles) for side, roles in default.sides.items())


def _creation(side: str, roles: tuple[str, ...]) -> str:
    given = ", ".join(f'"{role}"' for role in roles)
    return (
        f"    // on the {side}\n"
        '    db.getSiblingDB("admin").createUser({user: "syncsvc", pwd: passwordPrompt(),\n'
        f"                                         roles: [{given}]}})\n"
    )


def _listed(roles: tuple[str, ...]) -> str:
    return ", ".join(f"``{role}``" for role in roles)
