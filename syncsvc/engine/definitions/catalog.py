"""Creates, changes and drops collections, views and indexes on the destination. Every action may be repeated."""

from __future__ import annotations

from typing import Any

from pymongo.errors import OperationFailure

from syncsvc import shard_rules
from syncsvc.engine.definitions import standin
from syncsvc.engine.definitions.shard_setup import Sharding
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.errors import DEFINITION_NOT_APPLICABLE
from verifier.cluster import failures
from verifier.cluster.inventory import find_named, is_id_index, list_indexes, list_raw
from verifier.cluster.namespace import Namespace
from verifier.cluster.reading import read
from verifier.cluster.specification import CollectionSpec, Document, Kind, same_index
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

_GONE = failures.NAMESPACE_NOT_FOUND

# The view is there; or it makes a circle, is too deep, or has another collation, with views that are yet to change.
_PASSING_VIEW_CODES = (failures.NAMESPACE_EXISTS, 5, 165, 167)

# The commands that name the collection by its UUID as well: one that arrives late, for example after its own retry,
# must not change another collection that has the name by then.
_BY_UUID = frozenset({"collMod", "createIndexes", "drop", "dropIndexes", "renameCollection"})

# The collection or index is gone; a view has the name; the index was not prepared, so it is another one; or there is
# one like it.
_USERS_WERE_FASTER = (
    failures.NAMESPACE_NOT_FOUND,
    failures.INDEX_NOT_FOUND,
    failures.COMMAND_NOT_SUPPORTED_ON_VIEW,
    failures.INVALID_OPTIONS,
    failures.INDEX_OPTIONS_CONFLICT,
    failures.INDEX_KEY_SPECS_CONFLICT,
)


class Catalog:
    """The definitions on the destination, which are stand-ins until commit."""

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._destination_client = context.destination_client
        self._destination_writer = context.destination_writer
        self._stop = stop
        self._observe = context.observe
        sharded = context.destination_facts.is_sharded
        self._sharding = Sharding(context, stop) if sharded else None

    def create(self, definition: CollectionSpec) -> None:
        """Make sure that a collection is there as a stand-in, and has its indexes. Raises OperationError."""
        self.create_bare(definition)
        self.reconcile_indexes(definition)

    def create_bare(self, definition: CollectionSpec) -> None:
        """Make sure that a collection is there, and sharded if it is to be, with whatever indexes and documents."""
        namespace = definition.namespace
        if self._kind_at(namespace) is Kind.VIEW:
            # A view that had the name before or will have it after: whichever it is, its own events bring it back.
            self.drop(namespace)
        if self._sharding is not None:
            self._sharding.assign_primary(namespace.database)
        command = {"create": namespace.collection, **standin.stand_in(definition).options}
        self._run(namespace, command, failures.NAMESPACE_EXISTS)
        if definition.shard_key:
            self._shard(definition)

    def _shard(self, definition: CollectionSpec) -> None:
        """Also what is sharded is looked after: a process may have been killed just then."""
        assert self._sharding is not None
        namespace, index = definition.namespace, standin.serving(definition)
        try:
            if not self._sharding.is_sharded(namespace):
                if index is not None:
                    self._create_index(definition, index)
                    self._observe(Point.INDEX_FOR_SHARD_KEY_BUILT, str(namespace))
                self._sharding.shard(definition)
            self._sharding.remove_zones()
        except OperationFailure as error:
            # A sync that fails leaves no zones behind.
            self._sharding.remove_zones()
            raise _refused("shardCollection", namespace, error) from error
        if index is not None and index.get("unique"):
            command = standin.weakened(namespace.collection, index)
            self._run(namespace, command, failures.INDEX_NOT_FOUND)

    def refine(self, definition: CollectionSpec) -> None:
        """Make sure that a sharded collection has the key of its definition, which begins with the one that it has."""
        assert definition.shard_key
        namespace = str(definition.namespace)
        command = {"refineCollectionShardKey": namespace, "key": definition.shard_key["key"]}
        self._run(Namespace("admin", namespace), command)

    def rename(self, namespace: Namespace, to: Namespace) -> None:
        """Give a collection another name, which no other collection has; a view there is dropped."""
        if namespace == to:
            return
        self.drop_view(to)
        command = {"renameCollection": str(namespace), "to": str(to)}
        renamed = self._run(
            Namespace("admin", str(namespace)), command, failures.NAMESPACE_NOT_FOUND
        )
        if renamed is None and self._kind_at(to) is not Kind.COLLECTION:
            raise OperationError(
                DEFINITION_NOT_APPLICABLE,
                f"{namespace} cannot be renamed to {to}: neither is on the destination any more.",
            )

    def modify(self, namespace: Namespace, change: Document) -> None:
        """Run a collMod, unless it changes nothing."""
        # The span of a time-series collection's buckets only grows: it may be larger by now.
        passing = (failures.INVALID_OPTIONS,) if "timeseries" in change else ()
        if change:
            self._run(namespace, {"collMod": namespace.collection, **change}, *passing)

    def create_view(self, definition: CollectionSpec) -> None:
        """Create a view, where nothing has its name and its definition fits the views that are there by now."""
        if self._sharding is not None:
            self._sharding.assign_primary(definition.namespace.database)
        command = {"create": definition.namespace.collection, **definition.options}
        self._run(definition.namespace, command, *_PASSING_VIEW_CODES)

    def drop(self, namespace: Namespace) -> None:
        self._run(namespace, {"drop": namespace.collection}, failures.NAMESPACE_NOT_FOUND)

    def drop_view(self, namespace: Namespace) -> None:
        if self._kind_at(namespace) is Kind.VIEW:
            self.drop(namespace)

    def drop_views(self, database: str) -> None:
        for each in self._list(database, {"type": Kind.VIEW.value}):
            self.drop(Namespace(database, each["name"]))

    def drop_empty_database(self, database: str) -> None:
        """Drop a database with nothing of users in it: it would be in the way of one that differs in case."""
        if all(each["name"].startswith("system.") for each in self._list(database, {})):
            self._run(Namespace(database, ""), {"dropDatabase": 1})

    def reconcile_indexes(self, definition: CollectionSpec) -> None:
        """Make the indexes of a collection the stand-ins of its definition's, whatever they are now.

        Raises OperationError DefinitionNotApplicable, which names the index that cannot be built.
        """
        namespace, wanted = definition.storage, standin.stand_in(definition).indexes
        # Before any is built: what goes may be in the way of what comes.
        found = self._indexes(namespace)
        exchanging = shard_rules.SPARE in found or _loses_shard_key(definition, found, wanted)
        if exchanging:
            # No server is without an index that serves the shard key, not for a moment.
            self._create_index(definition, shard_rules.spare(definition))
            self._observe(Point.SPARE_INDEX_BUILT, str(namespace))
        for name in found.keys() - wanted.keys() - {shard_rules.SPARE}:
            self._drop_index(namespace, name)
        for name, index in wanted.items():
            if name not in found or not same_index(found[name], index):
                self._create_index(definition, index)
        if exchanging:
            self._drop_index(namespace, shard_rules.SPARE)

    def _create_index(self, definition: CollectionSpec, index: Document) -> None:
        """One of the same name and another definition gives way."""
        command = {
            "createIndexes": definition.storage.collection,
            "indexes": [standin.creatable(index, definition.collated)],
        }
        conflicts = (failures.INDEX_OPTIONS_CONFLICT, failures.INDEX_KEY_SPECS_CONFLICT)
        try:
            if self._run(definition.namespace, command, *conflicts) is None:
                self._drop_index(definition.storage, index["name"])
                self._run(definition.namespace, command)
        except OperationError as error:
            raise OperationError(
                error.kind, f"Index {index['name']}: {error.description}"
            ) from error

    def _indexes(self, namespace: Namespace) -> dict[str, Document]:
        indexes = read(lambda: list_indexes(self._destination_client, *namespace), self._stop)
        return {each["name"]: each for each in indexes if not is_id_index(each)}

    def _drop_index(self, namespace: Namespace, name: str) -> None:
        self._run(
            namespace,
            {"dropIndexes": namespace.collection, "index": name},
            failures.INDEX_NOT_FOUND,
            failures.NAMESPACE_NOT_FOUND,
        )

    def weaken(self, definition: CollectionSpec) -> None:
        """Make of a collection that is this its stand-in."""
        for command in standin.weakenings(definition):
            self._run(definition.namespace, command)

    def prepare(self, definition: CollectionSpec) -> None:
        """Put back what can be put back before users write."""
        for command in standin.preparations(definition):
            self._run(definition.namespace, command)

    def convert(self, definition: CollectionSpec) -> None:
        """Make prepared indexes unique, and build those that had to wait for it.

        Users write already: what they have dropped, changed or replaced meanwhile is theirs, and needs nothing more.
        """
        for command in standin.conversions(definition):
            self._run(definition.namespace, command, *_USERS_WERE_FASTER)
        waiting = standin.waiting(definition)
        if waiting and self._is_still(definition):
            command = {"createIndexes": definition.namespace.collection, "indexes": waiting}
            self._run(definition.namespace, command, *_USERS_WERE_FASTER)

    def _is_still(self, definition: CollectionSpec) -> bool:
        """Whether the collection is what it was: without its indexes it is another, or none, which would be created."""
        found = read(
            lambda: find_named(self._destination_client, definition.namespace),
            self._stop,
        )
        built = standin.stand_in(definition).indexes.keys()
        return found is not None and not built.isdisjoint(found.indexes)

    def _kind_at(self, namespace: Namespace) -> Kind | None:
        listed = self._list(namespace.database, {"name": namespace.collection})
        return next((Kind(each["type"]) for each in listed), None)

    def _list(self, database: str, query: Document) -> list[Document]:
        return read(lambda: list_raw(self._destination_client, database, query), self._stop)

    def _run(
        self, namespace: Namespace, command: dict[str, Any], *expected: int
    ) -> dict[str, Any] | None:
        """Return the reply; None if the server answered with one of the expected codes, which say that it was done."""
        try:
            return self._destination_writer.run(
                namespace.database, {**command, **self._by_uuid(namespace, command)}
            )
        except OperationFailure as error:
            if error.code in expected:
                return None
            if error.code == failures.COLLECTION_UUID_MISMATCH and _GONE in expected:
                return None
            raise _refused(next(iter(command)), namespace, error) from error

    def _by_uuid(self, namespace: Namespace, command: dict[str, Any]) -> dict[str, Any]:
        """Return the field that limits a command to the collection that has the name now; views have no UUID."""
        name, target = next(iter(command.items()))
        if name not in _BY_UUID:
            return {}
        if name == "renameCollection":
            database, _, target = target.partition(".")
            namespace = Namespace(database, target)
        # Servers do not take the UUID of the buckets of a time series.
        listed = self._list(namespace.database, {"name": target, "type": Kind.COLLECTION.value})
        if not listed or target.startswith("system."):
            return {}
        return {"collectionUUID": listed[0]["info"]["uuid"]}


def _loses_shard_key(
    definition: CollectionSpec, found: dict[str, Document], wanted: dict[str, Document]
) -> bool:
    """Whether, of the indexes found, none stays that serves the shard key."""
    if not definition.shard_key:
        return False
    staying = [
        each for name, each in found.items() if name in wanted and same_index(each, wanted[name])
    ]
    # None of them is unique now, even if the one for a unique shard key is to be.
    key = {**definition.shard_key, "unique": False}
    return not shard_rules.is_served(key, staying, definition.collated)


def _refused(action: str, namespace: Namespace, error: OperationFailure) -> Exception:
    """What to raise for an error that is not expected."""
    if failures.named_kind(error) is not None:
        return error
    return OperationError(
        DEFINITION_NOT_APPLICABLE,
        f"{action} on {namespace} was refused: {failures.text_of(error)}.",
    )
