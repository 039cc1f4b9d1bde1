"""The table of all named errors of the verifier: name, HTTP status, meaning, remedy."""

from __future__ import annotations

from verifier.cluster import document_filters, failures
from verifier.cluster.cluster import SAME_CLUSTER, SERVER_FEATURE_MISSING, UNSUPPORTED_TOPOLOGY
from verifier.cluster.connect import INVALID_URI, MISSING_PACKAGE
from verifier.cluster.connection_source import INVALID_CONNECTION_FILE
from verifier.cluster.namespace_map import NAMESPACE_COLLISION
from verifier.compare import errors as of_checks
from verifier.compare.errors import (
    DEFINITION_CHANGED,
    INCOMPATIBLE_METADATA,
    INVALID_FILTER,
    MISMATCHES_REPLACED,
    NOTHING_TO_COMPARE,
    OTHER_CHECK_SAVED,
    SUPERSEDED,
    TEXT_NOT_COMPARABLE,
    TIME_SERIES_NOT_COMPARABLE,
)
from verifier.runtime.access import INVALID_TOKEN, INVALID_TOKEN_FILE, ROLE_NOT_ALLOWED
from verifier.runtime.channel import BODY_TOO_LARGE, MALFORMED_BODY
from verifier.runtime.commands import COMMAND_IN_PROGRESS
from verifier.runtime.errors import INTERNAL_ERROR, ErrorKind
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

CHECK_IN_PROGRESS = ErrorKind(
    "CheckInProgress",
    409,
    "A check is already running; no new check was started, and the running one was not changed.",
    "Send POST /api/v1/writesOff if writesOff is false in GET /api/v1/progress. Wait until phase is idle there, then "
    "start the new check.",
)
NO_CHECK_RUNNING = ErrorKind(
    "NoCheckRunning",
    409,
    "writesOff ends a running check, but none is running; nothing was changed.",
    "If a check was started, GET /api/v1/progress shows how it ended. Otherwise, start a check with POST "
    "/api/v1/check.",
)
NO_CHECK = ErrorKind(
    "NoCheck",
    404,
    "There is no report: no check was started, the saved state of the check was dropped, or the process was restarted "
    "with other namespaces or another docCompareMethod after the check had ended.",
    "Start a check with POST /api/v1/check. If a check with other options has ended and no newer one was started, a "
    "restart with its options shows it again.",
)
WRITES_ALREADY_OFF = ErrorKind(
    "WritesAlreadyOff",
    409,
    "writesOff was already sent to this check, which ends once the last changes are compared.",
    "Wait until phase is idle in GET /api/v1/progress.",
)
UNSUPPORTED_VERSION = ErrorKind(
    "UnsupportedServerVersion",
    409,
    "The version of a server is not supported.",
    "The source must run MongoDB 5.0 or newer (6.0 or newer if it is sharded). The destination and the cluster of "
    "--metaURI must run MongoDB 6.0 or newer. An older featureCompatibilityVersion counts as the version.",
)

# Errors of the shared packages, with their remedy for a check.
_CONTINUES = "If a check ended with this error, it continues when the process is restarted."
_BEGIN_AGAIN = (
    "A check that ended with this error cannot continue: start a new one (POST /api/v1/check; with --checkOnce, run "
    "the command again)."
)
DOCUMENT_FILTER_FAILED = document_filters.DOCUMENT_FILTER_FAILED.with_remedy(
    "A new check avoids the error if its query accepts every document, for example with $convert and onError."
)
METADATA_BLOCKED = of_checks.METADATA_BLOCKED.with_remedy(
    "If a check ended with this error, it continues when the process is restarted with the same --metaURI."
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
    INVALID_TOKEN,
    ROLE_NOT_ALLOWED,
    INVALID_FILTER,
    DOCUMENT_FILTER_FAILED,
    INVALID_URI,
    MISSING_PACKAGE,
    INVALID_CONNECTION_FILE,
    SAME_CLUSTER,
    CHECK_IN_PROGRESS,
    NO_CHECK,
    NO_CHECK_RUNNING,
    WRITES_ALREADY_OFF,
    COMMAND_IN_PROGRESS,
    TOO_MANY_READERS,
    UNSUPPORTED_TOPOLOGY,
    UNSUPPORTED_VERSION,
    SERVER_FEATURE_MISSING,
    DEFINITION_CHANGED,
    NOTHING_TO_COMPARE,
    TIME_SERIES_NOT_COMPARABLE,
    TEXT_NOT_COMPARABLE,
    NAMESPACE_COLLISION,
    OPLOG_WINDOW_EXCEEDED,
    EVENT_TOO_LARGE,
    CLUSTER_UNREACHABLE,
    NOT_AUTHORIZED,
    UNEXPECTED_SERVER_ERROR,
    INCOMPATIBLE_METADATA,
    OTHER_CHECK_SAVED,
    SUPERSEDED,
    METADATA_BLOCKED,
    MISMATCHES_REPLACED,
    ADDRESS_NOT_AVAILABLE,
    INVALID_TOKEN_FILE,
    INVALID_CERTIFICATE,
    INVALID_WEBHOOK_SECRET,
    INTERNAL_ERROR,
)
