"""The named errors of a check, whichever process it runs in."""

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
    "A collection, view or index was made, changed, renamed or dropped on the source during the check.",
    "What was compared before that may be void: let no such change happen, and check again.",
)
INCOMPATIBLE_METADATA = ErrorKind(
    "IncompatibleMetadata",
    409,
    "The saved state of a check was written by another version of this program.",
    "Start the version that saved it again, or begin a new check with --clean.",
)
OTHER_CHECK_SAVED = ErrorKind(
    "OtherCheckSaved",
    409,
    "The saved state is that of a check of other clusters, or with other options.",
    "Nothing was touched. Start with the clusters and options of that check, or begin anew with --clean, "
    "or keep both with another --metaDBName.",
)
NOTHING_TO_COMPARE = ErrorKind(
    "NothingToCompare",
    409,
    "Nothing on either cluster has a name that the check is to compare, so nothing is proved.",
    "Correct the namespaces in the options of the verifier, and check again.",
)
MISMATCHES_REPLACED = ErrorKind(
    "MismatchesReplaced",
    409,
    "The mismatches that were being read were replaced by those of a newer generation.",
    "Read them again; when the check has ended, they stay.",
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
