"""The saved form of run records, with upgrades from the formats of earlier versions, and functions that load them."""

from __future__ import annotations

from typing import Any

from bson.timestamp import Timestamp
from marshmallow import ValidationError, fields

from syncsvc import errors
from syncsvc.metadata import Metadata
from syncsvc.options import CopyReadPreference, StartOptions
from syncsvc.principals.comparison import PrincipalCounts
from syncsvc.saved.journal import StoredJournal
from syncsvc.saved.late_findings import StoredLateFindings
from syncsvc.saved.run import Failure, PhaseBegin, RunRecord
from syncsvc.saved.stored import Stored, StoredOptions, StoredPosition
from syncsvc.state import Phase, State
from verifier.cluster.newest import read_newest, session_after
from verifier.runtime.errors import OperationError
from verifier.runtime.formats import Formats

RUNS = "runs"


class _StoredFailure(Stored):
    kind = Failure

    name = fields.String(required=True)
    description = fields.String(required=True)
    elsewhere = fields.Boolean()


class _StoredPhase(Stored):
    kind = PhaseBegin

    phase = fields.Enum(Phase, by_value=True, required=True)
    at = fields.Float(required=True)


class _StoredPrincipals(Stored):
    kind = PrincipalCounts

    users = fields.Integer()
    roles = fields.Integer()
    equal = fields.Integer()
    kept = fields.Integer()
    conflicts = fields.Integer()


class _StoredRun(Stored):
    kind = RunRecord

    instance = fields.String(data_key="_id", required=True)
    owner = fields.String(required=True)
    state = fields.Enum(State, by_value=True, required=True)
    phase = fields.Enum(Phase, by_value=True, required=True)
    options = fields.Nested(StoredOptions, required=True)
    identities = fields.Tuple((fields.String(), fields.String()), required=True)
    fence = fields.UUID(required=True)
    start = fields.Nested(StoredPosition, allow_none=True)
    position = fields.Nested(StoredPosition, allow_none=True)
    copy_end = fields.Raw(data_key="copyEnd", allow_none=True)
    commit_time = fields.Raw(data_key="commitTime", allow_none=True)
    steps = fields.List(fields.String())
    can_write = fields.Boolean(data_key="canWrite")
    late_findings = fields.Nested(StoredLateFindings, data_key="lateFindings", allow_none=True)
    failure = fields.Nested(_StoredFailure, allow_none=True)
    reversals = fields.Integer()
    reverse_start = fields.Nested(StoredPosition, data_key="reverseStart", allow_none=True)
    committed = fields.Nested(StoredPosition, allow_none=True)
    found_blocked = fields.Dict(data_key="foundBlocked")
    found_balancing = fields.Dict(data_key="foundBalancing")
    instances = fields.List(fields.String())
    barrier = fields.String(allow_none=True)
    caught_up = fields.Boolean(data_key="caughtUp")
    beat = fields.Integer()
    epoch = fields.Integer()
    attempt = fields.Integer()
    repair = fields.Integer()
    repaired = fields.Integer()
    repair_done = fields.Integer(data_key="repairDone")
    commit_repairs = fields.Integer(data_key="commitRepairs")
    repair_requests = fields.Integer(data_key="repairRequests")
    repair_requests_met = fields.Integer(data_key="repairRequestsMet")
    repaired_documents = fields.Integer(data_key="repairedDocuments")
    repaired_definitions = fields.Integer(data_key="repairedDefinitions")
    principals = fields.Nested(_StoredPrincipals, allow_none=True)
    phases = fields.List(fields.Nested(_StoredPhase))
    journal = fields.Nested(StoredJournal)


def _rename_reversals(document: dict[str, Any]) -> dict[str, Any]:
    """Upgrade a saved record from format 6 to 7: rename fields of reversals; make verification a boolean."""
    renamed = {"turns": "reversals", "wayBack": "reverseStart"}
    options = document["options"]
    return {
        **{renamed.get(name, name): value for name, value in document.items()},
        "options": {**options, "verification": options["verification"]["enabled"]},
    }


def _allow_options(document: dict[str, Any]) -> dict[str, Any]:
    """Upgrade a saved record from format 7 to 8: only the number changes, because format 8 only allows more options."""
    return document


# The format of a record without the options of `_needs_current_format`. Earlier versions may continue such a sync.
_WITHOUT_NEW_OPTIONS = 7
# Formats before 6 were never released. The rows of collections and partitions have no format, because instances of
# different versions may save them concurrently. So a new field of these rows needs a default for when it is missing,
# and a row whose meaning changes needs a field that says so.
FORMATS = Formats(
    subject="The saved sync in the metadata database",
    oldest=6,
    steps=(_rename_reversals, _allow_options),
    unsupported=errors.INCOMPATIBLE_METADATA,
)


def _needs_current_format(options: StartOptions) -> bool:
    """Return whether an earlier version must not continue the sync, because it would ignore one of the options.

    An earlier version would commit without users and roles, read the primary, use the source's names on the
    destination, sync all documents, or change foreign data.
    """
    return (
        options.users_and_roles is not None
        or options.copy_read_preference is not CopyReadPreference.PRIMARY
        or bool(options.namespace_remap)
        or bool(options.document_filters)
        or options.pre_existing_destination_data
    )


def run_document(record: RunRecord) -> dict[str, Any]:
    new = _needs_current_format(record.options)
    return {
        "format": FORMATS.current if new else _WITHOUT_NEW_OPTIONS,
        "only": True if record.coordinates else record.instance,
        **_StoredRun().dump(record),
    }


def run_from(document: dict[str, Any]) -> RunRecord:
    """Convert a saved document to a RunRecord.

    Raises OperationError IncompatibleMetadata if this version does not support the format of the document, or cannot
    read a field.
    """
    try:
        record: RunRecord = _StoredRun().load(FORMATS.upgrade(document))
    except ValidationError as error:
        raise OperationError(
            errors.INCOMPATIBLE_METADATA, f"{FORMATS.subject} cannot be read: {error.messages}."
        ) from error
    return record


def saved_instances(metadata: Metadata) -> tuple[str, ...]:
    """Return the IDs of the instances whose runs are saved in the metadata. Raises the driver's errors."""
    return tuple(str(each["_id"]) for each in metadata[RUNS].find())


def load_owner(metadata: Metadata, instance: str) -> str | None:
    """Return the random name of the process that owns an instance's saved run; None if there is no run.

    Only the owner may save the run. Raises the driver's errors.
    """
    found = metadata[RUNS].find_one({"_id": instance}, {"owner": True})
    return None if found is None else str(found["owner"])


def load_run(metadata: Metadata, instance: str) -> RunRecord | None:
    """Return the saved run of an instance; None if there is none.

    Raises OperationError IncompatibleMetadata, and the driver's errors.
    """
    document = read_newest(metadata.client, metadata.name, RUNS, instance)
    return None if document is None else run_from(document)


def load_runs(
    metadata: Metadata,
    *instances: str,
    with_journals: bool = False,
    since: Timestamp | None = None,
) -> list[RunRecord]:
    """Return the saved runs of the instances with these IDs; without an ID, those of all instances.

    The runs include all saves up to the cluster time `since`. If it is None, they may be outdated right after an
    election. Journals are only loaded if `with_journals` is true, because few callers need them. Raises OperationError
    IncompatibleMetadata, and the driver's errors.
    """
    query = {"_id": {"$in": instances}} if instances else {}
    projection = None if with_journals else {"journal": False}
    with session_after(metadata.client, since) as session:
        return [run_from(each) for each in metadata[RUNS].find(query, projection, session=session)]
