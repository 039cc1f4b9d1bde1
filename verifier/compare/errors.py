"""The named errors of a check, in either process."""

from __future__ import annotations

from verifier.runtime.errors import ErrorKind

INVALID_FILTER = ErrorKind(
    "InvalidFilter",
    400,
    "A server refuses the filter of the documents to check.",
    "See the description for the server's reason; send a filter that works in a find on both clusters, "
    "and does not order documents, as $near does, or need an index, as $text does.",
)
DEFINITION_CHANGED = ErrorKind(
    "DefinitionChanged",
    409,
    "A collection, view or index was created, changed, renamed or dropped on the source during the check.",
    "Earlier comparisons may be invalid: avoid such changes, and check again.",
)
INCOMPATIBLE_METADATA = ErrorKind(
    "IncompatibleMetadata",
    409,
    "The saved state of a check was written by another version of this program.",
    "Start that version instead of this one, or begin a new check with --clean.",
)
OTHER_CHECK_SAVED = ErrorKind(
    "OtherCheckSaved",
    409,
    "The saved state belongs to a check of other clusters or with other options.",
    "Nothing was touched. Start with the clusters and options of that check, or start over with --clean, "
    "or keep both with another --metaDBName.",
)
NOTHING_TO_COMPARE = ErrorKind(
    "NothingToCompare",
    409,
    "No collection or view of either cluster matches the names to compare, so nothing is proved.",
    "Correct the namespaces in the options of the verifier, and check again.",
)
MISMATCHES_REPLACED = ErrorKind(
    "MismatchesReplaced",
    409,
    "A newer generation replaced the mismatches while they were read.",
    "Read them again; after the end of the check they do not change.",
)
SUPERSEDED = ErrorKind(
    "Superseded",
    409,
    "Another verifier process has taken this check over.",
    "Let only one process with one --metaDBName run at a time; see the progress of the other one.",
)
METADATA_BLOCKED = ErrorKind(
    "MetadataBlocked",
    409,
    "User writes are blocked on the cluster that holds the state of the check, and its user may not pass the block.",
    "Grant the user of --metaURI the privilege bypassWriteBlockingMode (the built-in role restore has it), "
    "or name another cluster with --metaURI.",
)
