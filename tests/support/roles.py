"""The built-in roles that the documentation asks for, by what a sync is to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

READER = ("readAnyDatabase", "clusterMonitor")
WRITER = ("readWriteAnyDatabase", "dbAdminAnyDatabase", "clusterMonitor")


@dataclass(frozen=True)
class Use:
    """One row of the README's table: the options of a start, and which roles it needs on either side."""

    name: str
    source: tuple[str, ...]
    destination: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)

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
    """The table as the list that the documentation shows."""
    return "".join(
        f"{use.name}\n"
        f"    on the source {_listed(use.source)};\n"
        f"    on the destination {_listed(use.destination)}.\n"
        for use in USES
    )


def _listed(roles: tuple[str, ...]) -> str:
    return ", ".join(f"``{role}``" for role in roles)
