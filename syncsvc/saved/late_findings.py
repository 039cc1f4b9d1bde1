"""The findings of the watch of the source after a commit (`syncsvc.engine.after_commit`), and their saved form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from bson.timestamp import Timestamp
from marshmallow import fields

from syncsvc.saved.stored import Stored, StoredPosition
from verifier.cluster.namespace import Namespace
from verifier.cluster.times import Position

# The maximum number of saved collections. A message names fewer, followed by "and others".
_MOST_NAMESPACES = 10


@dataclass(frozen=True)
class LateFindings:
    """The user writes found so far that reached the source after a commit and are missing on the destination.

    All changes before `position`, a position in the source's change stream, are checked, except changes between the two
    cluster times `gap` that the oplog lost before they were checked. `writes` is the number of writes found, and
    `namespaces` are the first collections in which writes were found. `first` and `last` are the cluster times of the
    first and the last change found in such collections; None if nothing is found. `ended` is whether the watch is over.
    """

    position: Position
    writes: int = 0
    namespaces: tuple[Namespace, ...] = ()
    first: Timestamp | None = None
    last: Timestamp | None = None
    gap: tuple[Timestamp, Timestamp] | None = None
    ended: bool = False

    def with_writes(
        self, found: Mapping[Namespace, int], times: Sequence[Timestamp]
    ) -> LateFindings:
        """Return the findings with more writes.

        `found` contains the number of writes by collection, and `times` the cluster times of the changes in these
        collections, in order. Neither may be empty.
        """
        names = dict.fromkeys((*self.namespaces, *found))
        return replace(
            self,
            writes=self.writes + sum(found.values()),
            namespaces=tuple(islice(names, _MOST_NAMESPACES)),
            first=self.first or times[0],
            last=times[-1],
        )

    def resumed_at(self, position: Position) -> LateFindings:
        """Return the findings with which to continue at `position`: the oplog lost the unchecked changes before it."""
        begin = self.gap[0] if self.gap else self.position.time
        return replace(self, position=position, gap=(begin, position.time))


class _StoredName(fields.Field[Namespace]):
    def _serialize(self, value: Any, attr: Any, obj: Any, **kwargs: Any) -> list[str]:
        return [*value]

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> Namespace:
        return Namespace(*value)


class StoredLateFindings(Stored):
    kind = LateFindings

    position = fields.Nested(StoredPosition, required=True)
    writes = fields.Integer()
    namespaces = fields.List(_StoredName())
    first = fields.Raw(allow_none=True)
    last = fields.Raw(allow_none=True)
    gap = fields.Tuple((fields.Raw(), fields.Raw()), allow_none=True)
    ended = fields.Boolean()
