"""The named errors that a check can raise, in the verifier or in the sync service."""

from __future__ import annotations

from verifier.runtime.errors import ErrorKind

INVALID_FILTER = ErrorKind(
    "InvalidFilter",
    400,
    "A server refused the filter that selects the documents to compare.",
    "Correct the filter: the server's message gives the reason for the refusal. The filter must be valid in a "
    "find command, and must not contain operators that sort documents (such as $near) or need an index (such as "
    "$text).",
)
DEFINITION_CHANGED = ErrorKind(
    "DefinitionChanged",
    409,
    "A collection, view or index was created, changed, renamed or dropped on the source during the check.",
    "Earlier comparisons may be invalid: check again, and do not change definitions on the source during the check.",
)
INCOMPATIBLE_METADATA = ErrorKind(
    "IncompatibleMetadata",
    409,
    "The saved state of a check was written by another version of this program, and this version cannot read it.",
    "Start the version that wrote the saved state, or begin a new check with --clean.",
)
OTHER_CHECK_SAVED = ErrorKind(
    "OtherCheckSaved",
    409,
    "The saved state belongs to a check of other clusters or with other options.",
    "Nothing was changed. To continue the saved check, start with its clusters and options. To drop the saved check "
    "and begin a new one, add --clean. To keep the saved check, save the new check under another --metaDBName.",
)
NOTHING_TO_COMPARE = ErrorKind(
    "NothingToCompare",
    409,
    "No collection or view of either cluster matches the names to compare, so nothing was compared.",
    "Correct the namespaces in the options of the verifier, and check again.",
)
TIME_SERIES_NOT_COMPARABLE = ErrorKind(
    "TimeSeriesNotComparable",
    409,
    "The source holds a time-series collection, and its servers are older than MongoDB 6.0. Such servers cannot read "
    "measurements in the order that the comparison needs.",
    "Exclude all time-series collections of the source (excludeNamespaces), check again, and compare the measurements "
    "in another way. Or upgrade the servers of the source, and check again.",
)
TEXT_NOT_COMPARABLE = ErrorKind(
    "TextNotComparable",
    409,
    "The name of a collection or view, or a name or text in a definition on the source, is not valid UTF-8, or "
    "contains the character U+FFFD, which replaces invalid bytes. So it cannot be distinguished from others.",
    "Rename or redefine it on both clusters, or exclude the collection or view (excludeNamespaces) by the name in the "
    "message, and compare it in another way. Then check again.",
)
MISMATCHES_REPLACED = ErrorKind(
    "MismatchesReplaced",
    409,
    "A newer generation (pass) of the check, or a new check, replaced the mismatches while they were read, or their "
    "saved state was deleted.",
    "Read the mismatches again from the beginning. They do not change while no check is running.",
)
SUPERSEDED = ErrorKind(
    "Superseded",
    409,
    "Another verifier process has taken this check over or has begun a new one, or the saved state of the check was "
    "deleted. This process has stopped working on the check.",
    "If another process runs with the same --metaDBName, stop this process: the check continues in the other one. "
    "Otherwise, restart this process; if the saved state was deleted, then start a new check.",
)
METADATA_BLOCKED = ErrorKind(
    "MetadataBlocked",
    409,
    "User writes are blocked on the cluster that stores the state of the check, and the block also applies to the user "
    "of this process.",
    "Grant the user of --metaURI (by default, of the destination) the privilege bypassWriteBlockingMode (the built-in "
    "role restore has it), or name another cluster with --metaURI.",
)
