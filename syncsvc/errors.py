"""All named errors of the sync service in one table: name, HTTP status, meaning, remedy."""

from __future__ import annotations

from verifier.cluster import cluster, document_filters, failures, namespace_map
from verifier.cluster.cluster import SAME_CLUSTER
from verifier.cluster.connect import INVALID_URI, MISSING_PACKAGE
from verifier.cluster.connection_source import INVALID_CONNECTION_FILE
from verifier.compare import errors as of_checks
from verifier.compare.errors import MISMATCHES_REPLACED
from verifier.runtime.access import INVALID_TOKEN, INVALID_TOKEN_FILE, ROLE_NOT_ALLOWED
from verifier.runtime.channel import BODY_TOO_LARGE, MALFORMED_BODY
from verifier.runtime.commands import COMMAND_IN_PROGRESS
from verifier.runtime.errors import INTERNAL_ERROR, ErrorKind, OperationError, in_words_of
from verifier.runtime.httpd import (
    ADDRESS_NOT_AVAILABLE,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    TOO_MANY_READERS,
)
from verifier.runtime.schemas import INVALID_REQUEST
from verifier.runtime.sites import HOST_NOT_ALLOWED, ORIGIN_NOT_ALLOWED
from verifier.runtime.tls import INVALID_CERTIFICATE
from verifier.runtime.webhook import INVALID_WEBHOOK_SECRET

# The remedy for a reversed sync that has failed for good: users have written to both clusters, so it cannot be reset.
_NEW_SYNC = (
    "leave the applications on the cluster that they use now. To return to the other cluster, empty that cluster and "
    'start a new sync to it: follow "A new sync" in docs/howto/reverse.'
)

UNKNOWN_CLUSTER = ErrorKind(
    "UnknownCluster",
    400,
    "The field source or destination names an unknown cluster.",
    "Use cluster0 and cluster1, in either order.",
)
INVALID_STATE = ErrorKind(
    "InvalidState",
    409,
    "The request is not possible in the current state of the sync, with the options of the sync, or at this instance.",
    "Nothing was changed. GET /api/v1/progress shows the state. If the request is still needed, send it again in a "
    "state that allows it.",
)
CONTRADICTS_DESIRED_STATE = ErrorKind(
    "ContradictsDesiredState",
    409,
    "The configuration declares a state of the sync (desiredState) that the command contradicts.",
    "Nothing was changed. Change desiredState in the configuration of this process, and restart it: the sync continues "
    "where it was.",
)
NOT_ACTIVE = ErrorKind(
    "NotActive",
    409,
    "This daemon is a standby: only the active daemon answers commands and most queries.",
    "Send the request to the active daemon: the field lease of GET /api/v1/progress names the host of the active "
    "daemon. If no daemon is active, send the request again after a few seconds.",
)
NOT_READY = ErrorKind(
    "NotReady",
    503,
    "The process cannot do its work now, because it is still starting, or because a cluster does not answer.",
    "Wait until the process is ready. If it does not become ready, check that both clusters can be reached from this "
    "host; a restart of the process does not help.",
)
FAILURE_IS_FINAL = ErrorKind(
    "FailureIsFinal",
    409,
    "The sync failed permanently, so it cannot be resumed.",
    "Nothing was changed. If this message names something to check, check that first. If nothing helps, and the sync "
    "was never committed, reset it (POST /api/v1/reset) and start it again. If it was reversed, it cannot be reset: "
    f"{_NEW_SYNC} errorDescription in GET /api/v1/progress says how to avoid this failure.",
)
CANNOT_REPAIR = ErrorKind(
    "CannotRepair",
    409,
    "No repair is possible now: verification is disabled or has not begun, the sync failed with an error other than "
    "VerificationFailed, or this instance is not the coordinator.",
    "If the sync is running with verification, wait until canCommit is true. If the sync has failed, see "
    "errorDescription in GET /api/v1/progress. With several instances, send the command to the coordinator; after "
    "VerificationFailed, to each instance.",
)
CANNOT_COMMIT = ErrorKind(
    "CannotCommit",
    409,
    "canCommit is false, for example because the copy or the first pass of the verification is not finished, the "
    "destination, the verification or another instance is too far behind, differences are being repaired, a collection "
    "was resharded and is being copied again, or, if the source is older than MongoDB 6.0, the definition of a "
    "collection or view has just changed.",
    "Wait until canCommit is true in GET /api/v1/progress, and read its warnings.",
)
DESTINATION_NOT_EMPTY = ErrorKind(
    "DestinationNotEmpty",
    409,
    "The destination holds user data that this sync has not copied.",
    "First check that source and destination are not swapped. To keep the data of the destination, use another, empty "
    "cluster, or start with preExistingDestinationData true and enableUserWriteBlocking none. Drop the named databases "
    "or collections only if nobody needs them. Then send the start again, or POST /api/v1/resume if the sync has "
    "failed.",
)
DESTINATION_NAMESPACE_EXISTS = ErrorKind(
    "DestinationNamespaceExists",
    409,
    "preExistingDestinationData is true, but a collection, view or database of the destination, which this sync has "
    "not created, has a name that the sync needs. The sync has not changed it.",
    "Drop the named collection, view or database on the destination; or rename the collection or view; or, before the "
    "start, exclude the name with a filter. Then send the start again, or POST /api/v1/resume if the sync has failed. "
    "An empty time-series collection can be left over from a process of this sync that was killed.",
)
OTHER_SYNC_ON_DESTINATION = ErrorKind(
    "OtherSyncOnDestination",
    409,
    "Another sync has the same destination, and preExistingDestinationData is false in at least one of the two; or "
    "this version of syncsvc cannot read the saved state of the other sync.",
    "Start both syncs with preExistingDestinationData true, each with its own --syncName. If the other sync is "
    "committed and not needed any more, drop its metadata database; otherwise, let it end, or reset it. Use the same "
    "version of syncsvc for both syncs.",
)
WRITE_BLOCKING_WITH_EXISTING_DATA = ErrorKind(
    "WriteBlockingWithExistingData",
    400,
    "preExistingDestinationData is true, but enableUserWriteBlocking would block user writes to the whole destination: "
    "the applications that use its other data could not write either.",
    "Set enableUserWriteBlocking to none, and make sure that nobody writes to the synced collections of the "
    "destination before canWrite is true.",
)
REVERSIBLE_WITH_EXISTING_DATA = ErrorKind(
    "ReversibleWithExistingData",
    400,
    "A sync to a destination that holds other data cannot be reversed.",
    "Set reversible to false, or use an empty destination.",
)
METADATA_LEFT_OVER = ErrorKind(
    "MetadataLeftOver",
    409,
    "The destination holds the metadata of another sync, or of other instances that this instance cannot join.",
    "Nothing was changed. If another instance of this sync has failed, resume it (POST /api/v1/resume). If another "
    "sync has left the metadata and is committed, drop its metadata database on the destination. Otherwise, let that "
    "sync end, or reset it with its own process. Then send the start again. For several syncs to one destination, give "
    "each its own --syncName.",
)
SHARDING_REQUIRED = ErrorKind(
    "ShardingRequired",
    409,
    "A sync from a replica set to a sharded cluster needs the start option sharding.",
    "Send the start with the option sharding, whose list shardingEntries may be empty.",
)
SHARDING_NOT_APPLICABLE = ErrorKind(
    "ShardingNotApplicable",
    409,
    "The start option sharding is only for a sync from a replica set to a sharded cluster.",
    "Send the start again without the option sharding.",
)
PRESPLIT_NOT_APPLICABLE = ErrorKind(
    "PresplitNotApplicable",
    409,
    'The start option presplit is only for a sharded destination, and its value "source" only for a sharded source.',
    "Send the start again without the option presplit, or with a value that suits the clusters.",
)
READ_PREFERENCE_NOT_APPLICABLE = ErrorKind(
    "ReadPreferenceNotApplicable",
    409,
    "The start option copyReadPreference is only for a source that is a replica set. On a sharded cluster, a chunk "
    "migration can delete documents that the copy is still reading from a secondary, so the copy would miss them.",
    "Send the start again without the option copyReadPreference.",
)
NO_MEMBER_TO_COPY = ErrorKind(
    "NoMemberToCopy",
    409,
    "No member of the source is suitable for the start options copyReadPreference and copyReadPreferenceTags.",
    "Check that a member with the requested role runs (rs.status()) and has the requested tags (rs.conf()), and that "
    "this host can connect to the member. Hidden and delayed members are never read.",
)
INVALID_SHARDING_ENTRY = ErrorKind(
    "InvalidShardingEntry",
    400,
    "An entry of sharding.shardingEntries has a shard key that servers refuse, names a collection that is not synced, "
    "or names the same collection as another entry.",
    "Correct the named entry, or leave it out.",
)
COLLECTION_NOT_SHARDABLE = ErrorKind(
    "CollectionNotShardable",
    409,
    "sharding.shardingEntries names a view, or a collection that cannot be sharded; or the source has sharded a "
    "time-series collection; or the name of a collection on the destination is too long for a sharded one.",
    "Leave the named entry out: a collection without an entry is synced unsharded. Exclude a sharded time-series "
    "collection by a filter. Rename a collection whose name is too long, on the source or by namespaceRemap. If the "
    "sync has already begun, reset it (POST /api/v1/reset) and start it with other options; or rename a collection "
    "whose name is too long on the source, or drop the named collection there if it is not needed any more, which "
    "deletes its data, and send POST /api/v1/resume.",
)
SHARD_KEY_INDEX_MISSING = ErrorKind(
    "ShardKeyIndexMissing",
    409,
    "A collection to be sharded has no index on the source that supports the shard key, and createSupportingIndexes is "
    "false.",
    "Create the index on the source, or set sharding.createSupportingIndexes to true. If the sync has already begun, "
    "create the index and send POST /api/v1/resume.",
)
UNIQUE_INDEX_INCOMPATIBLE = ErrorKind(
    "UniqueIndexIncompatible",
    409,
    "A collection has a unique index whose uniqueness a sharded cluster cannot enforce with the requested shard key.",
    "Choose a shard key that the index begins with, drop the index on the source, or set buildIndexes to never. "
    "If the sync has already begun, drop the index and send POST /api/v1/resume; or reset the sync "
    "(POST /api/v1/reset) and start it with other options.",
)
RENAMED_ACROSS_DATABASES = ErrorKind(
    "RenamedAcrossDatabases",
    409,
    "A collection was moved into another database by a rename, which a sync from a replica set to a sharded cluster "
    "cannot apply.",
    "Reset the sync (POST /api/v1/reset) and start it again; do not rename collections into another database before "
    "the commit.",
)
UNKNOWN_INSTANCE = ErrorKind(
    "UnknownInstance",
    409,
    "The --id of this instance is not in the start option instances, or is not the name of a shard of the sharded "
    "source.",
    "From a replica set, list the --id of every instance in instances. From a sharded cluster, give each instance the "
    "name of a different shard as its --id, or run a single instance without --id.",
)
INSTANCES_NOT_APPLICABLE = ErrorKind(
    "InstancesNotApplicable",
    409,
    "The source is a sharded cluster, and the start option instances does not list exactly the needed instances: one "
    "for each shard, or a single one.",
    "Leave the start option instances out: a sync from a sharded cluster does not need this option.",
)
DIFFERENT_START = ErrorKind(
    "DifferentStart",
    409,
    "Another instance of this sync was started with other options.",
    "Send the start with the same body to all instances; or reset the other instances (POST /api/v1/reset), and start "
    "all of them again.",
)
INVALID_DOCUMENT_FILTER = ErrorKind(
    "InvalidDocumentFilter",
    400,
    "An element of documentFilter cannot be used.",
    "Correct the named element. The query must work in a find on the source, without operators that sort documents "
    "(such as $near) or need an index (such as $text). The collection must exist on the source and be synced, and must "
    "not be in copyInNaturalOrder.",
)
DOCUMENT_FILTER_NOT_APPLICABLE = ErrorKind(
    "DocumentFilterNotApplicable",
    409,
    "documentFilter names a view, a time-series collection or a capped collection. Their documents cannot be filtered.",
    "Leave the named element out of documentFilter, or exclude the collection by a namespace filter. If the sync has "
    "already begun, drop the collection or view on the source and send POST /api/v1/resume; or reset the sync "
    "(POST /api/v1/reset) and start it with other filters.",
)
WRITE_BLOCKING_WITH_FILTER = ErrorKind(
    "WriteBlockingWithFilter",
    400,
    "Writes on the source cannot be blocked if only a part of it is synced, because writes to the rest must continue.",
    "Set enableUserWriteBlocking to destinationOnly or none, or leave the filters out.",
)
WRITE_BLOCKING_NEEDS_NEWER_SOURCE = ErrorKind(
    "WriteBlockingNeedsNewerSource",
    409,
    "A source before MongoDB 6.0 cannot block user writes.",
    "Set enableUserWriteBlocking to destinationOnly or none, and before the commit, stop the applications that write "
    "to the source.",
)
REVERSIBLE_NEEDS_WRITE_BLOCKING = ErrorKind(
    "ReversibleNeedsWriteBlocking",
    400,
    "A sync can be reversed only if user writes to the source are blocked from the commit on.",
    "Set enableUserWriteBlocking to sourceAndDestination, or reversible to false.",
)
REVERSIBLE_WITH_FILTER = ErrorKind(
    "ReversibleWithFilter",
    400,
    "A sync with a filter cannot be reversed.",
    "Leave includeNamespaces, excludeNamespaces and documentFilter out, or set reversible to false.",
)
REMAP_WITH_USERS_AND_ROLES = ErrorKind(
    "RemapWithUsersAndRoles",
    400,
    "A sync that renames namespaces cannot copy users and roles, because their privileges name databases and "
    "collections of the source.",
    "Leave usersAndRoles out, and create users and roles on the destination yourself; or leave namespaceRemap out.",
)
REMAP_NEEDS_NEWER_SOURCE = ErrorKind(
    "RemapNeedsNewerSource",
    409,
    "A sync from a source before MongoDB 6.0 cannot rename namespaces.",
    "Leave namespaceRemap out, or upgrade the source first.",
)
REVERSIBLE_WITHOUT_INDEXES = ErrorKind(
    "ReversibleWithoutIndexes",
    400,
    "A sync that keeps indexes off the destination cannot be reversed, because the source would lose these indexes.",
    "Set buildIndexes to beforeDataCopy or afterDataCopy, or reversible to false.",
)
REVERSIBLE_NEEDS_NEWER_SOURCE = ErrorKind(
    "ReversibleNeedsNewerSource",
    409,
    "A sync from a source before MongoDB 6.0 cannot be reversed.",
    "Set reversible to false, or upgrade the source first.",
)
REVERSIBLE_NEEDS_EQUAL_VERSIONS = ErrorKind(
    "ReversibleNeedsEqualVersions",
    409,
    "A sync can be reversed only between servers of one release, such as 6.0.",
    "Set reversible to false, or use servers of the same release for both clusters.",
)
REVERSIBLE_NEEDS_EQUAL_SHARDS = ErrorKind(
    "ReversibleNeedsEqualShards",
    409,
    "A sync can be reversed only between replica sets, or between sharded clusters with the same number of shards.",
    "Set reversible to false.",
)
INSUFFICIENT_MEMORY = ErrorKind(
    "InsufficientMemory",
    409,
    "There is too little memory for a sync with verification.",
    "Give the machine or the control group of this process more memory, or set verification.enabled to false.",
)
INSUFFICIENT_DISK_SPACE = ErrorKind(
    "InsufficientDestinationDiskSpace",
    409,
    "The disk of the destination has too little free space for the data to sync, or, if eventSpool is always, for the "
    "data and the event spool.",
    "Free space on the destination; or set skipDiskSpaceCheck to true if you know that the space is sufficient.",
)
UNSUPPORTED_VERSION = ErrorKind(
    "UnsupportedServerVersion",
    409,
    "The version of a server is not supported.",
    "The source must run MongoDB 5.0 or newer (6.0 or newer if it is sharded). The destination must run MongoDB 6.0 or "
    "newer, and at least the release of the source (such as 7.0). A lower featureCompatibilityVersion counts as the "
    "version: if the servers are new enough, raise it (setFeatureCompatibilityVersion).",
)
UNSUPPORTED_COLLECTION = ErrorKind(
    "UnsupportedCollection",
    409,
    "The source holds a collection or view that cannot be synced.",
    "Exclude the named collections by a filter, or drop them on the source. If the sync has already begun, drop them "
    "and send POST /api/v1/resume; or reset the sync (POST /api/v1/reset) and start it with a filter.",
)
UNSUPPORTED_CHANGE = ErrorKind(
    "UnsupportedChange",
    409,
    "A definition was changed on the source in a way that this version of syncsvc cannot apply; or a definition was "
    "changed during the commit on a source before MongoDB 6.0.",
    "If the definition was changed during the commit, send POST /api/v1/resume, and commit again. Otherwise, undo the "
    "change on the source (for example, drop a new collection or index), and send POST /api/v1/resume. If the change "
    "cannot be undone, or the sync fails at it again, reset the sync (POST /api/v1/reset) and start it again. Do not "
    "make such changes before the commit is complete.",
)
SHARD_KEY_CHANGED = ErrorKind(
    "ShardKeyChanged",
    409,
    "The source has replaced a collection with a new one, which must be copied again. This happens if the collection "
    "is resharded, or moved by movePrimary, during the commit; or, with several instances, if the source sends no "
    "change event for the resharding or the move.",
    "Send POST /api/v1/resume, which copies the collection again. Then commit again. If the sync fails again, reset it "
    "(POST /api/v1/reset) and start it again. With several instances, do not run reshardCollection, moveCollection, "
    "unshardCollection or movePrimary before the commit.",
)
RENAMED_OUT_OF_FILTER = ErrorKind(
    "RenamedOutOfFilter",
    409,
    "A synced collection was renamed on the source to a name that the filter excludes.",
    "No data was dropped. Reset the sync (POST /api/v1/reset), and start it again, for example with a filter that "
    "includes the new name, or with renamedOutOfFilter drop. If you do not need the collection, drop it on the "
    "source and send POST /api/v1/resume.",
)
NAMESPACE_COLLISION = namespace_map.NAMESPACE_COLLISION.with_remedy(
    "With reversible, which excludes filters, drop or rename one of the two namespaces on the source instead. If the "
    "sync has already begun, namespaceRemap cannot be changed: drop the named collection or view on the source, or "
    "rename the collection, and send POST /api/v1/resume. A sync that was never committed can also be reset (POST "
    "/api/v1/reset) and started with other options."
)
NOT_RENAMABLE = ErrorKind(
    "NotRenamable",
    409,
    "With the renames of namespaceRemap, the definition of a collection or view cannot be expressed exactly on the "
    "destination.",
    "Rename related collections and views in the same way, or exclude the named collection or view by a filter. If "
    "the sync has already begun, namespaceRemap cannot be changed: drop or change the named collection or view on the "
    "source, and send POST /api/v1/resume. A sync that was never committed can also be reset (POST /api/v1/reset) and "
    "started with other options.",
)
TTL_NOT_VERIFIABLE = ErrorKind(
    "TTLNotVerifiable",
    409,
    "A collection has a TTL index, buildIndexes is never, and verification is enabled: a verified destination must not "
    "lack an index that deletes documents.",
    "Set buildIndexes to another value, or verification.enabled to false. If the sync has already begun, drop the "
    "index on the source and send POST /api/v1/resume; or reset the sync (POST /api/v1/reset) and start it with other "
    "options.",
)
EVENT_SPOOL_FULL = ErrorKind(
    "EventSpoolFull",
    409,
    "The event spool reached its size limit, and then the oplog of the source dropped change events that the sync "
    "still needs.",
    "Restart the process with a larger --eventSpoolMB, or enlarge the oplog on each member of the source "
    "(replSetResizeOplog). Then send POST /api/v1/resume. Only if the resume is refused, because no member of the "
    "source has the next change events any more, reset the sync (POST /api/v1/reset) and start it again.",
)
EVENT_SPOOL_DAMAGED = ErrorKind(
    "EventSpoolDamaged",
    409,
    "Change events that were saved on the destination are missing or have changed, so they cannot be applied.",
    "Find out what changed the metadata database. If the oplog of the source still has these events, "
    "POST /api/v1/resume reads them again. Otherwise, reset the sync (POST /api/v1/reset) and start it again.",
)
EVENT_NOT_APPLICABLE = ErrorKind(
    "EventNotApplicable",
    409,
    "The destination refuses the write with which the sync applies a change of a document on the source.",
    "Remove the cause that the server's message names; then send POST /api/v1/resume.",
)
DOCUMENT_NOT_COPIED = ErrorKind(
    "DocumentNotCopied",
    409,
    "The destination refuses a document of the source.",
    "Remove the cause that the server's message names; then send POST /api/v1/resume.",
)
DUPLICATE_IDS = ErrorKind(
    "DuplicateIds",
    409,
    "A sharded collection of the source holds several documents with the same _id, which a sync cannot copy.",
    "Delete all but one of the named documents, or give each of them a different _id; check for more duplicates; "
    "then send POST /api/v1/resume.",
)
DEFINITION_NOT_APPLICABLE = ErrorKind(
    "DefinitionNotApplicable",
    409,
    "The definition or the name of a collection, view or index of the source cannot be applied to the destination.",
    "Remove the cause that errorDescription names; then send POST /api/v1/resume.",
)
FOREIGN_WRITE_BLOCK = ErrorKind(
    "ForeignWriteBlock",
    409,
    "An administrator or another program has blocked user writes to a cluster and has given a reason. The server "
    "then refuses to let the sync block or unblock them.",
    "Find out whether the block is still needed. If not, lift it with its reason, which the server's message names: "
    'db.adminCommand({setUserWriteBlockMode: 1, global: false, reason: "REASON"}). Then send the refused '
    "command again, or POST /api/v1/resume if the sync has failed.",
)
VERIFICATION_FAILED = ErrorKind(
    "VerificationFailed",
    409,
    "The destination differs from the source.",
    "Do not switch to the destination: let the applications return to the source. GET /api/v1/mismatches lists all "
    "differences: find the cause, such as writes to the destination. Then send POST /api/v1/repair (with several "
    "instances, to each of them): the sync repairs the differences and is RUNNING again. "
    "If you have undone the changes of the destination yourself, POST /api/v1/resume continues the sync without a "
    "repair. Then commit again.",
)
VERIFICATION_INCOMPLETE = ErrorKind(
    "VerificationIncomplete",
    409,
    "The verification could not compare everything, so it is unknown whether the clusters are equal.",
    "Do not switch to the destination. GET /api/v1/mismatches lists the differences found so far. Remove the named "
    "cause; then send POST /api/v1/resume, which verifies everything again; then commit again.",
)
USER_OR_ROLE_EXISTS = ErrorKind(
    "UserOrRoleExists",
    409,
    "usersAndRoles.copy is true, but the destination has another definition of a user or role to copy, or of a role "
    "granted to such a user or role. Users and roles on the destination are never overwritten.",
    "Drop the named users and roles on the destination, or make them equal to those of the source. To keep other "
    "definitions on the destination, start the sync with onConflict skip; roles that the source does not have must "
    "still be dropped. If the sync has already begun, GET /api/v1/users lists all conflicts; remove them, then "
    "repeat the refused command. If the sync has failed, first send POST /api/v1/resume.",
)
ROLE_MISSING = ErrorKind(
    "RoleMissing",
    409,
    "usersAndRoles.copy is true, but a user or role to copy has a role that is not copied and does not exist on the "
    "destination.",
    "Add the database of the role to usersAndRoles.databases, or create the role on the destination as it is on the "
    "source. If the sync has already begun, then repeat the refused command; if it has failed, first send "
    "POST /api/v1/resume.",
)
AUTH_SCHEMA_UNSUPPORTED = ErrorKind(
    "AuthSchemaUnsupported",
    409,
    "usersAndRoles.copy is true, but a cluster stores users and roles in a form that this version cannot copy.",
    "Leave usersAndRoles out, and create users and roles on the destination yourself; or upgrade the authSchema of the "
    "cluster (in admin.system.version) to version 5. If the sync has already begun, then repeat the refused command; "
    "if it has failed, first send POST /api/v1/resume.",
)
USER_OR_ROLE_NOT_COPIED = ErrorKind(
    "UserOrRoleNotCopied",
    409,
    "After users and roles were copied, some of them were missing on the destination, or differed from the source.",
    "Do not switch to the destination. Check that no other client changes users and roles, and read the log of the "
    "primary of the destination (on a sharded cluster, of its config servers). Drop the named users and roles on the "
    "destination if they differ. Then, if the sync has failed, send POST /api/v1/resume, and commit again; after a "
    "copy before the commit, repeat that copy.",
)
NOT_REVERSIBLE = ErrorKind(
    "NotReversible",
    409,
    "The sync was not started with reversible true.",
    "This sync cannot be reversed. Start the next sync with reversible true and enableUserWriteBlocking "
    "sourceAndDestination if you may want to reverse it.",
)
OLD_SOURCE_WRITTEN = ErrorKind(
    "OldSourceWritten",
    409,
    "Users wrote to the former source after the commit, so the clusters have diverged.",
    "The sync keeps its state. Leave the applications on the cluster that they use now. To return to the former "
    'source, empty it and start a new sync to it: follow "A new sync" in docs/howto/reverse. WARNING: this deletes the '
    "newer writes to the former source; save them first if you need them.",
)
DESTINATION_IN_USE = ErrorKind(
    "DestinationInUse",
    409,
    "Users may write to the destination, or were allowed to do so after an earlier commit. So its data must not be "
    "dropped.",
    "Nothing was changed. To return to the former source, use POST /api/v1/reverse if the sync is reversible. To end a "
    "committed sync, stop the process and drop only its metadata database: see docs/howto/clean-up. If a reversed sync "
    f"has failed and cannot be resumed, {_NEW_SYNC}",
)
SUPERSEDED = ErrorKind(
    "Superseded",
    409,
    "Another process has taken this sync over, or the saved sync was deleted. This process has stopped working on it.",
    "A sync that was taken over continues in the other process. With --standby, do nothing: this process becomes a "
    "standby. Without --standby, stop this process, because two processes must not run one sync with the same --id.",
)
_ABANDON = (
    "If the sync is COMMITTED and you will not reverse it, you can instead drop its metadata database: see "
    "docs/howto/clean-up. To give up a sync that is not COMMITTED, send POST /api/v1/reset to a process that accepts "
    "the metadata. Do not drop the metadata database of such a sync: the copied data, write blocks and stopped "
    "balancers would stay on the clusters, and no reset could remove them."
)
WRONG_CLUSTERS = ErrorKind(
    "WrongClusters",
    409,
    "The saved sync does not fit the clusters or the option --standby of this process, or both clusters hold a saved "
    "sync.",
    "Start the process with the clusters of the sync that wrote the metadata, and without --standby if the destination "
    f"of its start is cluster0. {_ABANDON}",
)
INCOMPATIBLE_METADATA = ErrorKind(
    "IncompatibleMetadata",
    409,
    "The metadata of a sync cannot be read, probably because another version of this program wrote it.",
    f"Start the version of this program that wrote the metadata. {_ABANDON}",
)

# Errors of the `verifier` packages, with their remedies in a sync.
_CONTINUES = (
    "If the sync has failed, it continues after POST /api/v1/resume, or when the process is restarted; do so before "
    "the oplog of the source drops the changes that the sync still needs."
)
_BEGIN_AGAIN = "Then reset the sync (POST /api/v1/reset) and start it again."
_RESUME_OR_BEGIN_AGAIN = (
    "If the sync has failed, send POST /api/v1/resume; if that is refused, the answer says whether another member "
    "of the source must become the primary first. Only if no member of the source has the change events any more, "
    "reset the sync (POST /api/v1/reset) and start it again."
)
UNSUPPORTED_TOPOLOGY = cluster.UNSUPPORTED_TOPOLOGY
SERVER_FEATURE_MISSING = cluster.SERVER_FEATURE_MISSING
DOCUMENT_FILTER_FAILED = document_filters.DOCUMENT_FILTER_FAILED.with_remedy(
    "If the sync has already begun, send POST /api/v1/resume afterwards. Or start the sync with a query that accepts "
    "every document, for example with $convert and onError; in this case, first reset a sync that has already begun "
    "(POST /api/v1/reset)."
)
CLUSTER_UNREACHABLE = failures.CLUSTER_UNREACHABLE.with_remedy(_CONTINUES)
NOT_AUTHORIZED = failures.NOT_AUTHORIZED.with_remedy(_CONTINUES)
UNEXPECTED_SERVER_ERROR = failures.UNEXPECTED_SERVER_ERROR.with_remedy(_CONTINUES)
OPLOG_WINDOW_EXCEEDED = failures.OPLOG_WINDOW_EXCEEDED.with_remedy(_RESUME_OR_BEGIN_AGAIN)
EVENT_TOO_LARGE = failures.EVENT_TOO_LARGE.with_remedy(_BEGIN_AGAIN)

# Errors that refuse a request or end the process. No sync fails with them.
REFUSALS = (
    NOT_FOUND,
    METHOD_NOT_ALLOWED,
    MALFORMED_BODY,
    BODY_TOO_LARGE,
    INVALID_REQUEST,
    HOST_NOT_ALLOWED,
    ORIGIN_NOT_ALLOWED,
    INVALID_TOKEN,
    ROLE_NOT_ALLOWED,
    UNKNOWN_CLUSTER,
    SAME_CLUSTER,
    INVALID_URI,
    MISSING_PACKAGE,
    INVALID_CONNECTION_FILE,
    INVALID_STATE,
    CONTRADICTS_DESIRED_STATE,
    CANNOT_COMMIT,
    CANNOT_REPAIR,
    COMMAND_IN_PROGRESS,
    TOO_MANY_READERS,
    OTHER_SYNC_ON_DESTINATION,
    WRITE_BLOCKING_WITH_EXISTING_DATA,
    REVERSIBLE_WITH_EXISTING_DATA,
    METADATA_LEFT_OVER,
    SHARDING_REQUIRED,
    SHARDING_NOT_APPLICABLE,
    PRESPLIT_NOT_APPLICABLE,
    READ_PREFERENCE_NOT_APPLICABLE,
    NO_MEMBER_TO_COPY,
    INVALID_SHARDING_ENTRY,
    UNKNOWN_INSTANCE,
    INSTANCES_NOT_APPLICABLE,
    DIFFERENT_START,
    INVALID_DOCUMENT_FILTER,
    WRITE_BLOCKING_WITH_FILTER,
    WRITE_BLOCKING_NEEDS_NEWER_SOURCE,
    REVERSIBLE_NEEDS_WRITE_BLOCKING,
    REVERSIBLE_WITH_FILTER,
    REMAP_WITH_USERS_AND_ROLES,
    REMAP_NEEDS_NEWER_SOURCE,
    REVERSIBLE_WITHOUT_INDEXES,
    REVERSIBLE_NEEDS_NEWER_SOURCE,
    REVERSIBLE_NEEDS_EQUAL_VERSIONS,
    REVERSIBLE_NEEDS_EQUAL_SHARDS,
    INSUFFICIENT_MEMORY,
    INSUFFICIENT_DISK_SPACE,
    UNSUPPORTED_TOPOLOGY,
    UNSUPPORTED_VERSION,
    SERVER_FEATURE_MISSING,
    NOT_REVERSIBLE,
    OLD_SOURCE_WRITTEN,
    DESTINATION_IN_USE,
    MISMATCHES_REPLACED,
    FAILURE_IS_FINAL,
    NOT_ACTIVE,
    NOT_READY,
    WRONG_CLUSTERS,
    ADDRESS_NOT_AVAILABLE,
    INVALID_TOKEN_FILE,
    INVALID_CERTIFICATE,
    INVALID_WEBHOOK_SECRET,
)
# Errors with which a sync can fail: `syncsvc/resuming.py` says what a resume does then. Some also refuse a request.
FAILURES = (
    DESTINATION_NOT_EMPTY,
    DESTINATION_NAMESPACE_EXISTS,
    COLLECTION_NOT_SHARDABLE,
    SHARD_KEY_INDEX_MISSING,
    UNIQUE_INDEX_INCOMPATIBLE,
    RENAMED_ACROSS_DATABASES,
    DOCUMENT_FILTER_NOT_APPLICABLE,
    DOCUMENT_FILTER_FAILED,
    UNSUPPORTED_COLLECTION,
    UNSUPPORTED_CHANGE,
    SHARD_KEY_CHANGED,
    RENAMED_OUT_OF_FILTER,
    NAMESPACE_COLLISION,
    NOT_RENAMABLE,
    TTL_NOT_VERIFIABLE,
    EVENT_NOT_APPLICABLE,
    DOCUMENT_NOT_COPIED,
    DUPLICATE_IDS,
    DEFINITION_NOT_APPLICABLE,
    FOREIGN_WRITE_BLOCK,
    VERIFICATION_FAILED,
    VERIFICATION_INCOMPLETE,
    USER_OR_ROLE_EXISTS,
    ROLE_MISSING,
    AUTH_SCHEMA_UNSUPPORTED,
    USER_OR_ROLE_NOT_COPIED,
    OPLOG_WINDOW_EXCEEDED,
    EVENT_SPOOL_FULL,
    EVENT_SPOOL_DAMAGED,
    EVENT_TOO_LARGE,
    CLUSTER_UNREACHABLE,
    NOT_AUTHORIZED,
    UNEXPECTED_SERVER_ERROR,
    SUPERSEDED,
    INCOMPATIBLE_METADATA,
    INTERNAL_ERROR,
)
ALL = (*REFUSALS, *FAILURES)


def of_sync(error: OperationError) -> OperationError:
    """Return `error`, which a `verifier` package raised, with the remedy that applies in a sync.

    MetadataBlocked becomes NotAuthorized. An error whose kind is not in `ALL` keeps its own remedy.
    """
    if error.kind == of_checks.METADATA_BLOCKED:
        return OperationError(NOT_AUTHORIZED, error.description)
    return in_words_of(ALL, error)
