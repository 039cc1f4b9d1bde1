"""All named errors of the sync service in one table: name, HTTP status, meaning, remedy."""

from __future__ import annotations

from verifier.cluster import cluster, failures
from verifier.cluster.cluster import SAME_CLUSTER
from verifier.cluster.connect import INVALID_URI
from verifier.compare import errors as of_checks
from verifier.compare.errors import MISMATCHES_REPLACED
from verifier.runtime.commands import COMMAND_IN_PROGRESS
from verifier.runtime.errors import INTERNAL_ERROR, ErrorKind, OperationError, in_words_of
from verifier.runtime.httpd import (
    ADDRESS_NOT_AVAILABLE,
    BODY_TOO_LARGE,
    MALFORMED_BODY,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    TOO_MANY_READERS,
)
from verifier.runtime.schemas import INVALID_REQUEST
from verifier.runtime.sites import HOST_NOT_ALLOWED, ORIGIN_NOT_ALLOWED

UNKNOWN_CLUSTER = ErrorKind(
    "UnknownCluster",
    400,
    "source or destination is not the name of a cluster of this process.",
    "Use cluster0 and cluster1, which are the names of the process options.",
)
NOT_SUPPORTED_YET = ErrorKind(
    "NotSupportedYet",
    400,
    "The request asks for a feature that this version does not have.",
    "Omit the named field, or set it to the value that the description names.",
)
INVALID_STATE = ErrorKind(
    "InvalidState",
    409,
    "The command is not allowed in the present state of the sync.",
    "See state in GET /api/v1/progress.",
)
FAILURE_IS_FINAL = ErrorKind(
    "FailureIsFinal",
    409,
    "The sync failed for a reason that does not go away, so it cannot be resumed.",
    "See errorDescription in GET /api/v1/progress for the reason and what to do.",
)
CANNOT_COMMIT = ErrorKind(
    "CannotCommit",
    409,
    "canCommit is false: the copy or the first pass of the verification is not finished, the destination or the "
    "verification is too far behind, or a definition was changed on a source before 6.0.",
    "Wait until canCommit is true in GET /api/v1/progress, and read its warnings.",
)
DESTINATION_NOT_EMPTY = ErrorKind(
    "DestinationNotEmpty",
    409,
    "The destination already holds databases.",
    "Nothing was touched. Drop the named databases on the destination, or use an empty cluster.",
)
METADATA_LEFT_OVER = ErrorKind(
    "MetadataLeftOver",
    409,
    "The destination holds the metadata of another sync.",
    "Nothing was touched. When that sync is over, drop the named databases on the destination.",
)
SHARDING_REQUIRED = ErrorKind(
    "ShardingRequired",
    409,
    "A sync from a replica set to a sharded cluster needs the start option sharding.",
    "Send sharding with its shardingEntries, which may be empty.",
)
SHARDING_NOT_APPLICABLE = ErrorKind(
    "ShardingNotApplicable",
    409,
    "The start option sharding is only for a sync from a replica set to a sharded cluster.",
    "Leave sharding out.",
)
INVALID_SHARDING_ENTRY = ErrorKind(
    "InvalidShardingEntry",
    400,
    "An entry of sharding.shardingEntries asks for something that no server supports, or names a collection that is "
    "not synced.",
    "Correct the named entry, or leave it out.",
)
COLLECTION_NOT_SHARDABLE = ErrorKind(
    "CollectionNotShardable",
    409,
    "sharding.shardingEntries names a view, or a collection that cannot be sharded; or the source has sharded a "
    "time-series collection.",
    "Leave its entry out; it is synced unsharded then. Exclude a sharded time-series collection by a filter. "
    "After a failure, clean the destination first.",
)
SHARD_KEY_INDEX_MISSING = ErrorKind(
    "ShardKeyIndexMissing",
    409,
    "No index of the source serves a shard key, and createSupportingIndexes is false.",
    "Create the index on the source, or set sharding.createSupportingIndexes to true.",
)
UNIQUE_INDEX_INCOMPATIBLE = ErrorKind(
    "UniqueIndexIncompatible",
    409,
    "A unique index of a collection cannot stay unique when the collection is sharded by the requested key.",
    "Choose a shard key that the index begins with, drop the index on the source, or set buildIndexes to never. "
    "After a failure, clean the destination and start the sync again.",
)
RENAMED_ACROSS_DATABASES = ErrorKind(
    "RenamedAcrossDatabases",
    409,
    "A collection was renamed into another database, in a sync from a replica set to a sharded cluster.",
    "Clean the destination and start the sync again; rename into no other database until it is committed.",
)
UNKNOWN_INSTANCE = ErrorKind(
    "UnknownInstance",
    409,
    "The id of this instance is not the name of a shard of the source.",
    "Give each of several instances the name of one shard as its --id, or leave --id out and run one instance alone.",
)
DIFFERENT_START = ErrorKind(
    "DifferentStart",
    409,
    "Another instance of this sync was started with other options.",
    "Send the same body to all instances; or clean the destination, and start all of them again.",
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
    "A source before MongoDB 6.0 cannot block the writes of users.",
    "Set enableUserWriteBlocking to destinationOnly or none, and before the commit, stop the applications that write.",
)
REVERSIBLE_NEEDS_WRITE_BLOCKING = ErrorKind(
    "ReversibleNeedsWriteBlocking",
    400,
    "A sync can be reversed only where no user writes to the source after the commit.",
    "Set enableUserWriteBlocking to sourceAndDestination, or reversible to false.",
)
REVERSIBLE_WITH_FILTER = ErrorKind(
    "ReversibleWithFilter",
    400,
    "A sync with a filter cannot be reversed.",
    "Leave includeNamespaces and excludeNamespaces out, or set reversible to false.",
)
REVERSIBLE_WITHOUT_INDEXES = ErrorKind(
    "ReversibleWithoutIndexes",
    400,
    "A sync that keeps indexes off the destination cannot be reversed: the source would lose them.",
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
    "Set reversible to false, or use servers of one release.",
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
    "Give the machine or the control group of this process more memory, or the process a lower --loadLevel; "
    "or set verification.enabled to false.",
)
INSUFFICIENT_DISK_SPACE = ErrorKind(
    "InsufficientDestinationDiskSpace",
    409,
    "The disk of the destination is too small for the data to sync.",
    "Free space on the destination; or send skipDiskSpaceCheck true if you know that the space is sufficient.",
)
UNSUPPORTED_VERSION = ErrorKind(
    "UnsupportedServerVersion",
    409,
    "The version of a server is not supported.",
    "The source must run MongoDB 5.0 or newer, a sharded one 6.0 or newer, the destination 6.0 or newer and no older "
    "version than the source.",
)
UNSUPPORTED_COLLECTION = ErrorKind(
    "UnsupportedCollection",
    409,
    "The source holds a collection of a kind that cannot be synced.",
    "Drop the named collections on the source, or move them by other means.",
)
UNSUPPORTED_CHANGE = ErrorKind(
    "UnsupportedChange",
    409,
    "A definition was changed on the source in a way that this version cannot apply.",
    "Clean the destination and start the sync again; avoid such changes until it is committed.",
)
SHARD_KEY_CHANGED = ErrorKind(
    "ShardKeyChanged",
    409,
    "A collection was resharded on the source, which creates a new collection in its place.",
    "Clean the destination and start the sync again; run no reshardCollection until it is committed.",
)
RENAMED_OUT_OF_FILTER = ErrorKind(
    "RenamedOutOfFilter",
    409,
    "A synced collection was renamed on the source to a name that the filter excludes.",
    "Nothing was dropped. Clean the destination, and start the sync again with a filter that includes the new name; "
    "or rename the collection back first.",
)
TTL_NOT_VERIFIABLE = ErrorKind(
    "TTLNotVerifiable",
    409,
    "A collection has a TTL index, buildIndexes is set to never, and verification is enabled: the expired documents "
    "would stay on the destination.",
    "Clean the destination and start the sync again with other buildIndexes, or with verification.enabled false.",
)
EVENT_NOT_APPLICABLE = ErrorKind(
    "EventNotApplicable",
    409,
    "The destination refuses a change of the source, even after the document was read again.",
    "See the description for the server's reason; then clean the destination and start the sync again.",
)
DOCUMENT_NOT_COPIED = ErrorKind(
    "DocumentNotCopied",
    409,
    "The destination refuses a document of the source.",
    "See the description for the server's reason; then clean the destination and start the sync again.",
)
DUPLICATE_IDS = ErrorKind(
    "DuplicateIds",
    409,
    "A sharded collection of the source holds several documents with the same _id, which cannot be told apart.",
    "Give all but one of the named documents another _id, or delete them; look for others; "
    "then clean the destination and start the sync again.",
)
DEFINITION_NOT_APPLICABLE = ErrorKind(
    "DefinitionNotApplicable",
    409,
    "The destination refuses a collection, view or index of the source.",
    "See the description for the server's reason; then clean the destination and start the sync again.",
)
VERIFICATION_FAILED = ErrorKind(
    "VerificationFailed",
    409,
    "The destination differs from the source.",
    "Do not switch to the destination. GET /api/v1/mismatches lists all differences: save them, and find the cause, "
    "such as writes to the destination, or writes to the source after the commit was requested. Then clean the "
    "destination and start the sync again.",
)
VERIFICATION_INCOMPLETE = ErrorKind(
    "VerificationIncomplete",
    409,
    "The verification could not compare everything, so nothing is proved.",
    "Do not switch to the destination. Remove the cause that the description names; "
    "then clean the destination and start the sync again.",
)
NOT_REVERSIBLE = ErrorKind(
    "NotReversible",
    409,
    "The sync was not started with reversible true.",
    "Only a sync that was started with reversible true, and therefore with enableUserWriteBlocking "
    "sourceAndDestination, can be reversed.",
)
OLD_SOURCE_WRITTEN = ErrorKind(
    "OldSourceWritten",
    409,
    "Users wrote to the former source after the commit, so the clusters have diverged.",
    "The sync stays committed, and applications stay where they are. To go back, clean the old source, "
    "drop the metadata database on both clusters, and start a sync to it.",
)
SUPERSEDED = ErrorKind(
    "Superseded",
    409,
    "Another process has taken this sync over, and this process has stopped working on it.",
    "The sync continues in the other process. Stop this one: let only one process with one id run at a time.",
)
WRONG_CLUSTERS = ErrorKind(
    "WrongClusters",
    409,
    "The metadata on the destination belongs to a sync between other clusters.",
    "Start the process with the clusters of that sync, or drop its metadata database to give it up.",
)
INCOMPATIBLE_METADATA = ErrorKind(
    "IncompatibleMetadata",
    409,
    "The metadata on the destination was written by another version of this program.",
    "Start that version instead of this one, or drop its metadata database to give the sync up.",
)

# Errors of the `verifier` packages, with their remedies in a sync.
_CONTINUES = "Nothing is lost: the sync continues with POST /api/v1/resume, or when the process is restarted."
_BEGIN_AGAIN = "Then start a new sync, with a clean destination."
UNSUPPORTED_TOPOLOGY = cluster.UNSUPPORTED_TOPOLOGY.with_remedy(
    "A sharded cluster can be synced to a sharded cluster only."
)
CLUSTER_UNREACHABLE = failures.CLUSTER_UNREACHABLE.with_remedy(_CONTINUES)
NOT_AUTHORIZED = failures.NOT_AUTHORIZED.with_remedy(_CONTINUES)
UNEXPECTED_SERVER_ERROR = failures.UNEXPECTED_SERVER_ERROR.with_remedy(_CONTINUES)
OPLOG_WINDOW_EXCEEDED = failures.OPLOG_WINDOW_EXCEEDED.with_remedy(_BEGIN_AGAIN)
EVENT_TOO_LARGE = failures.EVENT_TOO_LARGE.with_remedy(_BEGIN_AGAIN)

ALL = (
    NOT_FOUND,
    METHOD_NOT_ALLOWED,
    MALFORMED_BODY,
    BODY_TOO_LARGE,
    INVALID_REQUEST,
    HOST_NOT_ALLOWED,
    ORIGIN_NOT_ALLOWED,
    UNKNOWN_CLUSTER,
    SAME_CLUSTER,
    NOT_SUPPORTED_YET,
    INVALID_URI,
    INVALID_STATE,
    CANNOT_COMMIT,
    COMMAND_IN_PROGRESS,
    TOO_MANY_READERS,
    DESTINATION_NOT_EMPTY,
    METADATA_LEFT_OVER,
    SHARDING_REQUIRED,
    SHARDING_NOT_APPLICABLE,
    INVALID_SHARDING_ENTRY,
    COLLECTION_NOT_SHARDABLE,
    SHARD_KEY_INDEX_MISSING,
    UNIQUE_INDEX_INCOMPATIBLE,
    RENAMED_ACROSS_DATABASES,
    UNKNOWN_INSTANCE,
    DIFFERENT_START,
    WRITE_BLOCKING_WITH_FILTER,
    WRITE_BLOCKING_NEEDS_NEWER_SOURCE,
    REVERSIBLE_NEEDS_WRITE_BLOCKING,
    REVERSIBLE_WITH_FILTER,
    REVERSIBLE_WITHOUT_INDEXES,
    REVERSIBLE_NEEDS_NEWER_SOURCE,
    REVERSIBLE_NEEDS_EQUAL_VERSIONS,
    REVERSIBLE_NEEDS_EQUAL_SHARDS,
    INSUFFICIENT_MEMORY,
    INSUFFICIENT_DISK_SPACE,
    UNSUPPORTED_TOPOLOGY,
    UNSUPPORTED_VERSION,
    UNSUPPORTED_COLLECTION,
    UNSUPPORTED_CHANGE,
    SHARD_KEY_CHANGED,
    RENAMED_OUT_OF_FILTER,
    TTL_NOT_VERIFIABLE,
    EVENT_NOT_APPLICABLE,
    DOCUMENT_NOT_COPIED,
    DUPLICATE_IDS,
    DEFINITION_NOT_APPLICABLE,
    VERIFICATION_FAILED,
    VERIFICATION_INCOMPLETE,
    NOT_REVERSIBLE,
    OLD_SOURCE_WRITTEN,
    MISMATCHES_REPLACED,
    OPLOG_WINDOW_EXCEEDED,
    EVENT_TOO_LARGE,
    CLUSTER_UNREACHABLE,
    NOT_AUTHORIZED,
    UNEXPECTED_SERVER_ERROR,
    FAILURE_IS_FINAL,
    SUPERSEDED,
    WRONG_CLUSTERS,
    INCOMPATIBLE_METADATA,
    ADDRESS_NOT_AVAILABLE,
    INTERNAL_ERROR,
)


def of_sync(error: OperationError) -> OperationError:
    """Return an error of a check or of `verifier` with the name and the remedy that it has in this table."""
    if error.kind == of_checks.METADATA_BLOCKED:
        return OperationError(NOT_AUTHORIZED, error.description)
    return in_words_of(ALL, error)
