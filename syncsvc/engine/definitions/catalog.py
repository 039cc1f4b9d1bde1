"""Creates, changes and drops collections, views and indexes on the destination. Every operation is idempotent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from bson.binary import Binary
from pymongo.errors import OperationFailure

from syncsvc.engine.definitions import standin
from syncsvc.engine.definitions.shard_setup import Sharding
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.errors import DEFINITION_NOT_APPLICABLE
from syncsvc.rules import sharding
from syncsvc.saved.created_collections import is_replaced
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster import failures
from verifier.cluster.inventory import find_named, is_id_index, list_indexes, list_raw
from verifier.cluster.namespace import Namespace
from verifier.cluster.namespace_map import shown
from verifier.cluster.reading import read
from verifier.cluster.specification import CollectionSpec, Document, Kind, same_index
from verifier.cluster.writer import MAJORITY
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

_GONE = failures.NAMESPACE_NOT_FOUND

# Error codes to ignore when a view is created: the name is taken; or, because of other views that later events will
# change, the view is part of a cycle, is nested too deeply, or conflicts with their collation.
_PASSING_VIEW_CODES = (failures.NAMESPACE_EXISTS, 5, 165, 167)

# Commands that also name the collection by its UUID, so that a command that arrives late, for example after its own
# retry, cannot change another collection that has the name by then.
BY_UUID = frozenset(
    {
        "collMod",
        "createIndexes",
        "drop",
        "dropIndexes",
        "refineCollectionShardKey",
        "renameCollection",
        "shardCollection",
    }
)

# Error codes that mean that users changed the definition before the sync did: the collection or index is gone; a view
# has the name; users replaced the index with one that is not `prepareUnique`; or an equivalent index exists.
_USERS_WERE_FASTER = (
    failures.NAMESPACE_NOT_FOUND,
    failures.INDEX_NOT_FOUND,
    failures.COMMAND_NOT_SUPPORTED_ON_VIEW,
    failures.INVALID_OPTIONS,
    failures.INDEX_OPTIONS_CONFLICT,
    failures.INDEX_KEY_SPECS_CONFLICT,
)


class Catalog:
    """Manages the definitions on the destination, which are stand-ins (with relaxed options) until the commit.

    Every operation raises OperationError DefinitionNotApplicable if the destination refuses a command, and the driver's
    errors for other failures. `uuids` are the UUIDs of the collections (see `known_uuids`); if None, they are looked up
    before each command that accepts one. All commands use `write_concern`, except those of `Sharding`.
    """

    def __init__(
        self,
        context: RunContext,
        stop: StopToken,
        uuids: Mapping[Namespace, bytes] | None = None,
        write_concern: Mapping[str, Any] = MAJORITY,
    ) -> None:
        self._context = context
        self._destination_client = context.destination_client
        self._destination_writer = context.destination_writer
        self._stop = stop
        self._observe = context.observe
        self._views = context.views
        self._uuids = uuids
        self._write_concern = write_concern
        sharded = context.destination_facts.is_sharded
        self._sharding = Sharding(context, stop) if sharded else None

    def create(self, definition: CollectionSpec) -> None:
        """Create a collection and its indexes as stand-ins, which are relaxed until the commit.

        For example, unique indexes are not unique in a stand-in. If the server refuses to create the collection,
        because it exists, drop and build indexes until it has exactly those of the stand-in.
        """
        if not self.create_bare(definition) or not self._build_all(definition):
            self.reconcile_indexes(definition)

    def create_bare(self, definition: CollectionSpec) -> bool:
        """Create a collection unless it exists; shard it if its definition has a shard key.

        Creates no index except the one that the shard key needs, and does not check the options of an existing
        collection. Returns True only if the server reports that it created the collection, with no index except the one
        on `_id`; newer servers also report this if the collection exists with the same options. Returns False for a
        time-series collection, because servers of 6.3 and newer create it with an index on its `metaField` and its
        time. Drops a view with the same name: on the source, the view had the name earlier, or will get it later; in
        the second case, its change event creates the view again.
        """
        self._assign_primary(definition.namespace)
        created = self._create(definition)
        if definition.shard_key:
            self._shard(definition)
        return created and not definition.shard_key and definition.kind is not Kind.TIME_SERIES

    def _assign_primary(self, namespace: Namespace) -> None:
        """Create the database of a new collection or view, unless it exists or the destination is not sharded."""
        if self._sharding is None:
            return
        try:
            self._sharding.assign_primary(namespace.database)
        except OperationFailure as error:
            raise _refused("enableSharding", namespace, error) from error

    def _create(self, definition: CollectionSpec) -> bool:
        """Create a collection unless it exists. A view with its name is dropped.

        Return whether this call created the collection. If a view had the name, the result may be False although this
        call created the collection.
        """
        namespace = definition.namespace
        command = {"create": namespace.collection, **standin.stand_in(definition).options}
        if definition.kind is Kind.TIME_SERIES or self._sharding is not None:
            # The creation of such a collection takes several steps, and some of them could succeed although a view has
            # the name.
            self._free_of_view(namespace)
        created = self._run_create(namespace, command)
        if created is None and self._kind_at(namespace) is Kind.VIEW:
            self.drop_view(namespace)
            self._run_create(namespace, command)
        return created is not None

    def _run_create(self, namespace: Namespace, command: dict[str, Any]) -> dict[str, Any] | None:
        """Run the `create` command of a collection, and return the reply; None if the server answers that it exists.

        Newer servers do not answer that for a collection with the same options.

        Servers treat a time-series collection as a view, and refuse it if it conflicts with outdated views that refer
        to its name. The sync's own views in the database are then dropped; the commit creates them with their final
        definitions.
        """
        created = self._run(namespace, command, *_PASSING_VIEW_CODES)
        if created is None and self._kind_at(namespace) is None:
            for each in self.views(namespace.database):
                self.drop_view(each)
            created = self._run(namespace, command, failures.NAMESPACE_EXISTS)
        return created

    def _build_all(self, definition: CollectionSpec) -> bool:
        """Create all indexes of a collection's stand-in with one command.

        Return False if the destination refuses the command, for example because it refuses one of the indexes, or
        because two indexes conflict.
        """
        indexes = standin.stand_in(definition).indexes.values()
        if not indexes:
            return True
        command = {
            "createIndexes": definition.storage.collection,
            "indexes": [standin.creatable(each, definition.collated) for each in indexes],
        }
        try:
            self._run(definition.namespace, command)
            return True
        except OperationError:
            return False

    def _shard(self, definition: CollectionSpec) -> None:
        """Create the index that the shard key needs, and shard the collection. Skip the steps that are already done.

        Afterwards, remove the zones of this sync. If the index is unique, make it accept duplicates until the commit.
        """
        assert self._sharding is not None
        namespace, index = definition.namespace, standin.serving(definition)
        command: dict[str, Any] = {"shardCollection": str(namespace)}
        try:
            if not self._sharding.is_sharded(namespace):
                if index is not None:
                    self._create_index(definition, index)
                    self._observe(Point.INDEX_FOR_SHARD_KEY_BUILT, str(namespace))
                self._sharding.shard(definition, self._by_uuid(_admin(namespace), command))
            self._sharding.remove_zones()
        except OperationFailure as error:
            # A failed sync must not leave zones behind.
            self._sharding.remove_zones()
            raise _refused("shardCollection", namespace, error) from error
        if index is not None and index.get("unique"):
            command = standin.weakened(namespace.collection, index)
            self._run(namespace, command, failures.INDEX_NOT_FOUND)

    def refine(self, definition: CollectionSpec) -> None:
        """Give a sharded collection the shard key of its definition, which must begin with its current shard key."""
        assert definition.shard_key
        namespace, key = definition.namespace, definition.shard_key["key"]
        self._run(_admin(namespace), {"refineCollectionShardKey": str(namespace), "key": key})

    def rename(self, namespace: Namespace, to: Namespace) -> None:
        """Rename a collection; a no-op if only the new name exists. A view with the new name is dropped.

        No other collection may have the new name. Raises OperationError DefinitionNotApplicable if neither name exists.
        """
        if namespace == to:
            return
        self.drop_view(to)
        command = {"renameCollection": str(namespace), "to": str(to)}
        renamed = self._run(_admin(namespace), command, failures.NAMESPACE_NOT_FOUND)
        if renamed is None and self._kind_at(to) is not Kind.COLLECTION:
            raise OperationError(
                DEFINITION_NOT_APPLICABLE,
                f"{namespace} cannot be renamed to {to}: neither exists on the destination, because a user "
                f"dropped or renamed the collection there. {renamed_remedy(namespace)}",
            )

    def modify(self, namespace: Namespace, change: Document) -> None:
        """Run the command collMod with the fields of `change` on a collection; no-op if `change` is empty.

        If the server refuses new time-series options, ignore the error: the bucket span can only grow, and may already
        be larger.
        """
        passing = (failures.INVALID_OPTIONS,) if "timeseries" in change else ()
        if change:
            self._run(namespace, {"collMod": namespace.collection, **change}, *passing)

    def create_views(self, definitions: Collection[CollectionSpec]) -> None:
        """Save the definitions of views that the sync creates, then create these views in the given order."""
        self._views.add(definitions)
        self._observe(Point.VIEWS_SAVED, "")
        for each in definitions:
            self.create_view(each)

    def create_view(self, definition: CollectionSpec) -> bool:
        """Create a view, and return whether this call created it.

        A no-op if the name is taken, or if the server refuses the view because of the views that it refers to (a cycle,
        too many levels, another collation). A refused view is created at the commit, when all views are final.
        """
        self._assign_primary(definition.namespace)
        command = {"create": definition.namespace.collection, **definition.options}
        return self._run(definition.namespace, command, *_PASSING_VIEW_CODES) is not None

    def drop(self, namespace: Namespace) -> None:
        self._run(namespace, {"drop": namespace.collection}, failures.NAMESPACE_NOT_FOUND)

    def drop_view(self, namespace: Namespace) -> None:
        """Drop the view that has this name, if there is one, and forget the view definitions saved for this name."""
        self._discard_view(namespace, exists=self._kind_at(namespace) is Kind.VIEW)

    def _free_of_view(self, namespace: Namespace) -> None:
        """Drop the view that has the name of a new collection, if there is one.

        Unlike `drop_view`, this costs only one read if there is none: there may be thousands of collections to create.
        """
        if self._kind_at(namespace) is Kind.VIEW:
            self.drop_view(namespace)

    def _discard_view(self, namespace: Namespace, exists: bool) -> None:
        if exists:
            self._run(namespace, {"drop": namespace.collection}, failures.NAMESPACE_NOT_FOUND)
            self._observe(Point.VIEW_DROPPED, str(namespace))
        # Forget the definitions only after the drop: until then, a reset must recognize the view. Forget them even if
        # no view exists: an earlier process may have been killed after the drop, or the destination may have refused
        # the view. If the definitions stayed, a user's view with the same definition would count as the sync's own, and
        # the saved document of a view that is often changed would become too large.
        self._views.forget(namespace)

    def views(self, database: str) -> set[Namespace]:
        """Return the names of the views in a database of the destination that belong to this sync.

        These include saved views that do not exist, because they were refused or dropped.
        """
        listed = self._list(database, {"type": Kind.VIEW.value})
        found = {Namespace(database, each["name"]): each["options"] for each in listed}
        saved = {each for each in self._views.load() if each.database == database}
        return saved.union(self.own_views(found))

    def own_views(self, found: Mapping[Namespace, Document]) -> Mapping[Namespace, Document]:
        """Return the views in `found` that belong to this sync. `found` maps names of views to their options.

        This class returns all of them; a subclass may return fewer.
        """
        return found

    def drop_empty_database(self, database: str) -> None:
        """Drop a database that has no user collections or views; otherwise a no-op.

        While an empty database exists, the server refuses to create a database whose name differs only in case.
        """
        if all(each["name"].startswith("system.") for each in self._list(database, {})):
            self._run(Namespace(database, ""), {"dropDatabase": 1})

    def reconcile_indexes(self, definition: CollectionSpec) -> None:
        """Drop, build and change indexes until a collection has those of its stand-in definition.

        In a stand-in, unique indexes are not unique, TTL indexes never expire documents, and deferred indexes are
        missing (see `standin`). An index that only supports the shard key may remain. Raises OperationError
        DefinitionNotApplicable; its text names an index that cannot be built.
        """
        namespace, wanted = definition.storage, standin.stand_in(definition).indexes
        # Drop before building: an old index may conflict with a new one.
        found = self._indexes(namespace)
        exchanging = sharding.SPARE in found or _loses_support(definition, found, wanted)
        if exchanging:
            # Every shard must have an index that supports the shard key, at every moment.
            self._create_index(definition, sharding.spare(definition))
            self._observe(Point.SPARE_INDEX_BUILT, str(namespace))
        for name in found.keys() - wanted.keys() - {sharding.SPARE}:
            self._drop_index(namespace, name)
        for name, index in wanted.items():
            if name not in found or not standin.is_modifiable(found[name], index):
                self._create_index(definition, index)
            elif not same_index(found[name], index):
                self._modify_index(definition, found[name], index)
        if exchanging:
            self._drop_index(namespace, sharding.SPARE)

    def _create_index(self, definition: CollectionSpec, index: Document) -> None:
        """Create an index; replace an index that has the same name and another definition."""
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
            ) from error.__cause__

    def _modify_index(self, definition: CollectionSpec, found: Document, index: Document) -> None:
        """Turn the existing index `found` into `index`; replace it if the server refuses to change it.

        `createIndexes` is not enough: the server would leave a hidden index hidden.
        """
        name = definition.namespace.collection
        for command in standin.modifications(name, found, index):
            if self._run(definition.namespace, command, failures.INVALID_OPTIONS) is None:
                self._drop_index(definition.storage, index["name"])
                self._create_index(definition, index)
                return

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
        """Relax a collection's options and indexes for the time until the commit, without rebuilding any index.

        Afterwards, unique indexes accept duplicates, and documents do not expire. Deferred indexes (see
        `deferral.deferred_names`) are dropped. `definition` is the collection's current definition on the destination.
        """
        for command in standin.weakenings(definition):
            self._run(definition.namespace, command)

    def prepare(self, definition: CollectionSpec) -> None:
        """Restore a collection's original options and indexes, except uniqueness and the expiration of documents.

        Must be called before users may write. Afterwards, the server refuses new duplicates in indexes that will be
        unique. Deferred indexes (see `deferral.deferred_names`) are not built yet.
        """
        for command in standin.preparations(definition):
            if self._run(definition.namespace, command, failures.INDEX_NOT_FOUND) is None:
                # An earlier version of syncsvc began the sync, and deferred this index.
                name = command["index"]["name"]
                self._create_index(definition, standin.stand_in(definition).indexes[name])
                self._run(definition.namespace, command)

    def build_earlier(self, definition: CollectionSpec) -> None:
        """Build the missing indexes that an earlier version of syncsvc, which began the sync, has deferred.

        Call this once, after `prepare`, and before users may write: later, a missing index may be one that users have
        dropped.
        """
        self._build_missing(definition, standin.earlier_indexes(definition))

    def restore_expiration(self, definition: CollectionSpec) -> None:
        """Let documents expire as on the source.

        Users may already write: definitions that users have changed are left unchanged.
        """
        if not definition.expires:
            return
        present = self._find(definition.namespace)
        commands = () if present is None else standin.expirations(definition, present)
        for command in commands:
            self._run(definition.namespace, command, *_USERS_WERE_FASTER)

    def convert(self, definition: CollectionSpec) -> None:
        """Turn the indexes prepared by `prepare` into unique indexes, and build the deferred indexes (see `standin`).

        Users may already write: if they have dropped, changed or replaced an index or collection, their change is kept.
        """
        for command in standin.conversions(definition):
            self._make_unique(definition.namespace, command)
        self._build_missing(definition, standin.deferred_indexes(definition))

    def _build_missing(self, definition: CollectionSpec, indexes: list[Document]) -> None:
        """Build those of the `indexes` that a collection lacks, unless users have dropped or replaced the collection.

        An index that conflicts with an index of users is left out.
        """
        for index in self._missing(definition, indexes) if indexes else []:
            # One command for each index: the server builds none of the indexes in a command if one conflicts.
            command = {"createIndexes": definition.storage.collection, "indexes": [index]}
            self._run(definition.namespace, command, *_USERS_WERE_FASTER)

    def _make_unique(self, namespace: Namespace, command: dict[str, Any]) -> None:
        """Run a collMod command that makes an index unique.

        On a replica set, the command is not sent if the index is already unique: the server would scan it again. On a
        sharded cluster, the command is always sent, because other shards than the one that lists the indexes may not
        have finished; there, a command that is sent again waits for the end of the first one.
        """
        name = command["index"]["name"]

        def is_unique() -> bool:
            return bool(self._indexes(namespace).get(name, {}).get("unique"))

        is_done = is_unique if self._sharding is None else None
        self._run(namespace, command, *_USERS_WERE_FASTER, is_done=is_done)

    def _missing(self, definition: CollectionSpec, indexes: list[Document]) -> list[Document]:
        """Return those of the `indexes` that a collection lacks; empty if users have dropped or replaced it.

        A collection counts as replaced if it is of another kind, or if the sync has built indexes and it has none of
        them. `createIndexes` would create a dropped collection again.
        """
        found = self._find(definition.namespace)
        built = standin.stand_in(definition).indexes.keys()
        if found is None or found.kind is not definition.kind:
            return []
        if built and built.isdisjoint(found.indexes):
            return []
        return [each for each in indexes if each["name"] not in found.indexes]

    def _find(self, namespace: Namespace) -> CollectionSpec | None:
        return read(lambda: find_named(self._destination_client, namespace), self._stop)

    def _kind_at(self, namespace: Namespace) -> Kind | None:
        listed = self._list(namespace.database, {"name": namespace.collection})
        return next((Kind(each["type"]) for each in listed), None)

    def _list(self, database: str, query: Document) -> list[Document]:
        return read(lambda: list_raw(self._destination_client, database, query), self._stop)

    def _run(
        self,
        namespace: Namespace,
        command: dict[str, Any],
        *expected: int,
        is_done: Callable[[], bool] | None = None,
    ) -> dict[str, Any] | None:
        """Run a command in the database of `namespace`, and return the reply.

        Return None if the server answers with one of the `expected` error codes. If these contain the code for a
        missing collection, also return None if another collection has the name. Raises OperationError
        DefinitionNotApplicable if the server refuses the command with another code. See `ClusterWriter.run` for
        `is_done`.
        """
        full = {**command, **self._by_uuid(namespace, command)}
        full["writeConcern"] = dict(self._write_concern)
        try:
            return self._destination_writer.run(namespace.database, full, is_done=is_done)
        except OperationFailure as error:
            if error.code in expected:
                return None
            if error.code == failures.COLLECTION_UUID_MISMATCH and _GONE in expected:
                return None
            raise _refused(next(iter(command)), namespace, error) from error

    def _by_uuid(self, namespace: Namespace, command: dict[str, Any]) -> dict[str, Any]:
        """Return the field `collectionUUID`, so that a command has no effect on another collection of the same name.

        The UUID is that of the collection that has the name in the `uuids` of this Catalog or, if these are None, on
        the destination now. Return an empty dict if no collection has the name, if it is the name of a view, of a
        time-series collection, or of its buckets, or if the command does not accept the field.
        """
        if next(iter(command)) not in BY_UUID:
            return {}
        database, target = named = named_by(command, namespace.database)
        if self._uuids is not None:
            uuid = self._uuids.get(named)
            return {} if uuid is None else {"collectionUUID": Binary(uuid, 4)}
        # Query by the name only: with a further condition, the server scans all collections of the database.
        listed = self._list(database, {"name": target})
        found = next((each for each in listed if each["type"] == Kind.COLLECTION.value), None)
        # Servers do not accept the UUID of the buckets of a time-series collection. The name of the buckets begins with
        # "system.".
        if found is None or target.startswith("system."):
            return {}
        return {"collectionUUID": found["info"]["uuid"]}


def _admin(namespace: Namespace) -> Namespace:
    """Return the namespace to pass to `Catalog._run` for a command of the database `admin` about `namespace`."""
    return Namespace("admin", str(namespace))


def named_by(command: Mapping[str, Any], database: str) -> Namespace:
    """Return the namespace that a command, which is run in `database`, names in its first field."""
    target = next(iter(command.values()))
    if database == "admin":
        database, _, target = target.partition(".")
    return Namespace(database, target)


def known_uuids(
    records: Iterable[CollectionRecord], uuids: Mapping[Namespace, bytes]
) -> dict[Namespace, bytes]:
    """Return the UUIDs of the collections of `records` on the destination, by name, to pass to a Catalog.

    `uuids` maps all names on the destination to UUIDs. Time-series collections are left out, because servers do not
    accept the UUID of their buckets. Collections that users have replaced are left out, too: commands must not contain
    the UUID of a collection that may be foreign.
    """
    return {
        name: uuids[name]
        for each in records
        if (name := each.definition.namespace) in uuids
        and each.definition.kind is Kind.COLLECTION
        and not is_replaced(each, uuids)
    }


def _loses_support(
    definition: CollectionSpec, found: dict[str, Document], wanted: dict[str, Document]
) -> bool:
    """Return whether a sharded collection would have no index for its shard key while its indexes are replaced.

    `found` contains the current indexes by name, and `wanted` the new ones. Return False if the collection is not
    sharded.
    """
    if not definition.shard_key:
        return False
    staying = [
        each
        for name, each in found.items()
        if name in wanted and standin.is_modifiable(each, wanted[name])
    ]
    # Stand-ins are never unique now, even if the index for a unique shard key will be.
    key = {**definition.shard_key, "unique": False}
    return not sharding.is_served(key, staying, definition.collated)


def renamed_remedy(namespace: Namespace) -> str:
    """Return what to do if users have dropped or renamed a collection that has the name `namespace` in the sync."""
    return (
        f"If it was renamed, rename it back to {namespace}. If it was dropped, the sync cannot "
        "continue: reset it (POST /api/v1/reset) and start it again; if it was reversed, start a new sync instead."
    )


def _refused(action: str, namespace: Namespace, error: OperationFailure) -> Exception:
    """Return the exception to raise for an error of a command. `action` names the command in the exception's text.

    The result is OperationError DefinitionNotApplicable if the server refused the command, otherwise `error` itself.
    """
    if failures.named_kind(error) is not None:
        return error
    # A command of the database `admin` is about the namespace that `collection` contains.
    name = namespace.collection if namespace.database == "admin" else shown(namespace)
    return OperationError(
        DEFINITION_NOT_APPLICABLE,
        f"The destination refused {action} on {name}: {failures.text_of(error)}.",
    )
