"""Namespaces that have another name on the destination, and definitions that refer to them.

The functions here have no side effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from verifier.cluster.namespace import LONGEST_NAME, Namespace, differ_in_case
from verifier.cluster.references import NotRewritable, rewritten
from verifier.cluster.specification import CollectionSpec, Document, Kind
from verifier.runtime.errors import ErrorKind

NAMESPACE_COLLISION = ErrorKind(
    "NamespaceCollision",
    409,
    "With namespaceRemap, two namespaces would have the same name on one cluster, two databases would have names that "
    "differ only in case, or one namespace would be renamed twice.",
    "Give the two namespaces different names in namespaceRemap, remove one of two entries that rename the same "
    "namespace, or leave one of the two namespaces out by a filter.",
)

_Step = Callable[[Namespace], Namespace | None]


@dataclass(frozen=True)
class NamespaceMap:
    """Maps names on the source to names on the destination. Names that `renamed` does not mention stay the same.

    In `renamed`, a Namespace without a collection stands for a database with all of its collections; an entry for a
    single collection has precedence. `contradictions` must find nothing in `renamed`, except in an `inverse` map.

    The map is one-to-one: each name on the source belongs to exactly one name on the destination, and vice versa. For
    example, if the only entry renames A to B, the map pairs A on the source with B on the destination. It also pairs B
    on the source with A on the destination, the only name that is left. But the collection B of the source cannot be
    synced, because its name is taken (see `rival`), and a collection A on the destination counts as extra.
    """

    renamed: Mapping[Namespace, Namespace] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.renamed)

    def to_destination(self, name: Namespace) -> Namespace:
        """Return the name on the destination of the namespace `name` of the source.

        The buckets of a time-series collection are renamed with the collection.
        """
        return self._mapped(name, self._forward, self._back) if self.renamed else name

    def to_source(self, name: Namespace) -> Namespace:
        """Return the name on the source of the namespace `name` of the destination.

        The buckets of a time-series collection are renamed with the collection.
        """
        return self._mapped(name, self._back, self._forward) if self.renamed else name

    @cached_property
    def inverse(self) -> NamespaceMap:
        """Return the map of the reverse direction: its `to_destination` is `to_source` of this map, and vice versa."""
        return NamespaceMap(self._inverse)

    def is_taken(self, name: Namespace) -> bool:
        """Return whether the source's namespace `name` cannot be synced, because a renamed namespace takes its name."""
        return self.rival(name) is not None

    def rival(self, name: Namespace) -> Namespace | None:
        """Return the renamed namespace of the source that gets the only name that `name` could have on the destination.

        Return None if `name` can be synced. `name` is a namespace of the source.
        """
        owner = name.owner
        return None if self._forward(owner) is not None else self._back(self.wanted(owner))

    def wanted(self, name: Namespace) -> Namespace:
        """Return the destination name that `renamed` alone gives to `name`, even if the name is taken (see `rival`)."""
        found = _by_entry(self.renamed, name)
        return name if found is None else found

    def databases(self, database: str) -> set[str]:
        """Return the databases of the destination to which collections of this database of the source may be mapped."""
        # Collections with other names are mapped with their database, whose name is that of the first element.
        named = [
            Namespace(database, ""),
            *(here._replace(database=database) for here, _ in self._singles),
        ]
        return {
            self.to_destination(each).database
            for each in named
            if not each.collection or not self.is_taken(each)
        }

    def renames_within(self, database: str) -> bool:
        """Return whether a view in this database may have to refer to its collections by other names."""
        # All other collections of a renamed database keep their names within the database.
        target = self.renamed.get(Namespace(database, ""), Namespace(database, "")).database
        return any(
            here.database == database or there.database == target for here, there in self._singles
        )

    @cached_property
    def _singles(self) -> list[tuple[Namespace, Namespace]]:
        return [each for each in self.renamed.items() if each[0].collection]

    @cached_property
    def _inverse(self) -> dict[Namespace, Namespace]:
        return {there: here for here, there in self.renamed.items()}

    def _forward(self, name: Namespace) -> Namespace | None:
        """Return the new name of a namespace of the source.

        Return None if the namespace is not renamed, or if another namespace gets its new name.
        """
        return _matched(name, self.renamed, self._inverse)

    def _back(self, name: Namespace) -> Namespace | None:
        """Return the namespace of the source that gets this name by a rename; None if there is none."""
        return _matched(name, self._inverse, self.renamed)

    @staticmethod
    def _mapped(name: Namespace, step: _Step, opposite: _Step) -> Namespace:
        owner = name.owner
        found = step(owner)
        if found is None:
            found = owner
            while (before := opposite(found)) is not None:
                found = before
        return found if owner == name else found.buckets


def _matched(
    name: Namespace, entries: Mapping[Namespace, Namespace], back: Mapping[Namespace, Namespace]
) -> Namespace | None:
    """Return the name that `entries` give to `name`; None if there is none, or if `back` does not lead back to `name`.

    An entry for a single collection has precedence over the entry for its database.
    """
    found = _by_entry(entries, name)
    return found if found is None or _by_entry(back, found) == name else None


def _by_entry(entries: Mapping[Namespace, Namespace], name: Namespace) -> Namespace | None:
    single = entries.get(name)
    if single is not None:
        return single
    database = entries.get(Namespace(name.database, ""))
    return None if database is None else Namespace(database.database, name.collection)


def entries_of(remap: Iterable[Mapping[str, Any]]) -> list[tuple[Namespace, Namespace]]:
    """Return the entries of the start option `namespaceRemap` as pairs (name on the source, new name)."""
    return [(_named(each["from"]), _named(each["to"])) for each in remap]


def _named(name: Mapping[str, str]) -> Namespace:
    return Namespace(name["database"], name.get("collection", ""))


def contradictions(entries: Sequence[tuple[Namespace, Namespace]]) -> Iterator[str]:
    """Yield a sentence for each pair of entries of a `namespaceRemap` that contradict each other.

    Two entries contradict each other if they rename the same namespace, or because of their new names: if these are
    equal, if one is a database and the other is a collection in it, or if the names of their databases differ only in
    case.
    """
    for (number, one), (later, other) in combinations(enumerate(entries), 2):
        where = f"namespaceRemap[{number}] and namespaceRemap[{later}]"
        if one[0] == other[0]:
            yield f"{where} both rename {shown(one[0])}."
        elif _overlap(one[1], other[1]):
            yield f"{where} would both use the name {shown(max(one[1], other[1]))} on the destination."
        elif _may_conflict(one[1], other[1]):
            yield f"{where} map to databases whose names differ only in case, which servers refuse."


def reverse_contradictions(entries: Sequence[tuple[Namespace, Namespace]]) -> Iterator[str]:
    """Yield a sentence for each pair of entries that could prevent a reversed sync.

    A reversed sync may have to create the databases of both entries on the old source, where the names of two databases
    must not differ only in case.
    """
    for (number, one), (later, other) in combinations(enumerate(entries), 2):
        if _may_conflict(one[0], other[0]):
            yield (
                f"reversible is true, but namespaceRemap[{number}] and namespaceRemap[{later}] rename namespaces of "
                "databases whose names differ only in case. A reversed sync might have to create both databases on one "
                "cluster, which servers refuse."
            )


def _overlap(one: Namespace, other: Namespace) -> bool:
    if one.database != other.database:
        return False
    return one.collection == other.collection or not (one.collection and other.collection)


def _may_conflict(one: Namespace, other: Namespace) -> bool:
    """Return whether a cluster may refuse to have the databases of both names, which differ only in case."""
    return differ_in_case(one.database, other.database, sharded=True)


def shown(name: Namespace) -> str:
    """Return the text of a namespace for messages; for a whole database, the name of the database."""
    return str(name) if name.collection else name.database


def renamed(definition: CollectionSpec, names: NamespaceMap) -> CollectionSpec:
    """Return the definition under its name on the destination. In a view, names of collections are replaced, too.

    Raises NotRewritable for a view whose references to collections cannot be replaced.
    """
    if not names:
        return definition
    there = names.to_destination(definition.namespace)
    if definition.kind is not Kind.VIEW or not names.renames_within(definition.namespace.database):
        return replace(definition, namespace=there)
    return replace(definition, namespace=there, options=_renamed_view(definition, there, names))


def _renamed_view(view: CollectionSpec, there: Namespace, names: NamespaceMap) -> Document:
    def rename(collection: str) -> str:
        name = Namespace(view.namespace.database, collection)
        found = names.to_destination(name)
        if found.database != there.database:
            raise NotRewritable(
                f"the view would be named {there}, but {name}, to which the view refers, would be named {found}, and "
                "a view cannot refer to another database"
            )
        return found.collection

    changes: Document = {"viewOn": rename(view.options["viewOn"])}
    if "pipeline" in view.options:
        changes["pipeline"] = rewritten(view.options["pipeline"], rename)
    return {**view.options, **changes}


def collision(name: Namespace, names: NamespaceMap) -> str | None:
    """Return a sentence that says which renamed namespace takes this name; None if `name` is not taken."""
    rival, wanted = names.rival(name), names.wanted(name.owner)
    if rival is None:
        return None
    if wanted == name.owner:
        return f"{name} would keep its name on the destination, but with namespaceRemap, {rival} has this name there."
    return (
        f"{name} would be renamed to {wanted} with its database, but with namespaceRemap, {rival} has this name on the "
        "destination."
    )


def reverse_collision(name: Namespace, names: NamespaceMap) -> str | None:
    """Return a sentence that says why a reversed sync could not map the new name of `name` back; None if it could.

    For example, if the database e is renamed to f, and e.a to g.a, then the collection f.a keeps its name. But a
    reversed sync, which uses the inverse of `names`, would map f.a to e.a, the old name of g.a. `name` must not be
    taken in `names`.
    """
    there = names.to_destination(name.owner)
    rival = names.inverse.rival(there)
    if rival is None:
        return None
    return (
        f"reversible is true, but {name} could not be synced back: with namespaceRemap, a reversed sync would map "
        f"{there} to {names.inverse.wanted(there)}, the old name of {rival}."
    )


def obstacles(definition: CollectionSpec, names: NamespaceMap) -> Iterator[str]:
    """Yield a sentence for each reason why a collection or view cannot have its new name on the destination.

    Yield nothing if no namespaces are renamed. This does not check whether the new name is taken: see `collision`.
    """
    if not names:
        return
    name, there = definition.namespace, names.to_destination(definition.namespace)
    size = len(str(replace(definition, namespace=there).storage).encode())
    if there != name and size > LONGEST_NAME:
        yield (
            f"{name} would be named {there}, but servers allow at most {LONGEST_NAME} bytes for a name (or, for a "
            f"time-series collection, for the name of its buckets), not {size}."
        )
    try:
        renamed(definition, names)
    except NotRewritable as error:
        yield f"The view {name} does not fit namespaceRemap: {error}."
    beside = _beside(definition)
    moved = [names.to_destination(each) for each in beside]
    kept = [Namespace(there.database, each.collection) for each in beside]
    if beside and (there.collection != name.collection or kept != moved):
        yield (
            f"{name} has encrypted fields, whose metadata is in {', '.join(map(str, beside))}; the collection can only "
            "be renamed together with its database."
        )


def _beside(definition: CollectionSpec) -> list[Namespace]:
    """Return the names of the collections with the metadata of encrypted fields; empty if there are no such fields.

    The definition contains these names, and drivers compute them from the name of the collection.
    """
    encrypted = definition.options.get("encryptedFields", {})
    names = (encrypted.get(key) for key in ("escCollection", "eccCollection", "ecocCollection"))
    return [Namespace(definition.namespace.database, each) for each in names if each]


def case_collisions(definitions: Iterable[CollectionSpec], names: NamespaceMap) -> Iterator[str]:
    """Yield a sentence for each pair of databases whose names on the destination would differ only in case.

    The databases are those of `definitions`. Servers refuse such names. Yield nothing if no namespaces are renamed.
    """
    if not names:
        return
    databases = {names.to_destination(each.namespace).database for each in definitions}
    for one, other in combinations(sorted(databases), 2):
        if differ_in_case(one, other, sharded=True):
            yield (
                f"On the destination, the names of the databases {one} and {other} would differ only in case, which "
                "servers refuse."
            )
