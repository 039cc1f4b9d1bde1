"""Converts tasks, rechecks, mismatches and the progress of generation 0 to rows (saved documents) and back.

The functions here have no side effects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import lru_cache

import bson
from bson.errors import BSONError

from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import Document
from verifier.compare.check_progress import NamespaceProgress
from verifier.compare.mismatch import (
    Aspect,
    DefinitionMismatch,
    Difference,
    DocumentMismatch,
    FieldDifference,
    Mismatch,
    StoredMismatch,
)
from verifier.compare.scope import NamespacePair
from verifier.compare.task import Recheck, RecheckId, Status, Task, Work, digest_of


def read_namespace(text: str) -> Namespace:
    database, _, collection = text.partition(".")
    return Namespace(database, collection)


def compared_row(name: Namespace, found: NamespaceProgress, started: float) -> Document:
    """Return the row that saves the progress of generation 0 in one collection or view.

    `started` is when the check began, in UNIX seconds.
    """
    return {"_id": str(name), "started": started, **asdict(found)}


def read_compared(row: Document) -> tuple[Namespace, NamespaceProgress]:
    known = {each.name: row[each.name] for each in fields(NamespaceProgress)}
    return read_namespace(row["_id"]), NamespaceProgress(**known)


def recheck_id(recheck: RecheckId) -> Document:
    return {"n": str(recheck.namespace), "h": recheck.digest, "m": recheck.mismatched}


def _read_recheck_id(document: Document) -> RecheckId:
    return RecheckId(read_namespace(document["n"]), document["h"], document["m"])


def recheck_row(recheck: Recheck) -> Document:
    return {"_id": recheck_id(recheck.id), "key": recheck.key, "since": recheck.since}


def read_recheck(row: Document) -> Recheck:
    return Recheck(_read_recheck_id(row["_id"]), row["key"], row["since"])


def task_row(task: Task) -> Document:
    return {
        "_id": task.number,
        "work": task.work.value,
        "source": str(task.names.source),
        "destination": str(task.names.destination),
        "scan": task.scan,
        "lower": task.lower,
        "upper": task.upper,
        "first": None if task.first is None else recheck_id(task.first),
        "last": None if task.last is None else recheck_id(task.last),
        "status": task.status.value,
        "documents": task.documents,
        "size": task.size,
        "definitionDiffers": task.definition_differs,
        "unscanned": task.unscanned,
    }


@lru_cache
def _read_pair(source: str, destination: str) -> NamespacePair:
    """Return the pair with these names. Tasks share the cached pairs: copies would take more memory than the tasks."""
    return NamespacePair(read_namespace(source), read_namespace(destination))


def read_task(row: Document) -> Task:
    return Task(
        number=row["_id"],
        work=Work(row["work"]),
        names=_read_pair(row["source"], row["destination"]),
        scan=row["scan"],
        lower=row["lower"],
        upper=row["upper"],
        first=None if row["first"] is None else _read_recheck_id(row["first"]),
        last=None if row["last"] is None else _read_recheck_id(row["last"]),
        status=Status(row["status"]),
        documents=row["documents"],
        size=row["size"],
        definition_differs=row["definitionDiffers"],
        unscanned=row["unscanned"],
    )


def document_mismatch_row(
    mismatch: DocumentMismatch, since: Mapping[bytes, float], seen: float
) -> Document:
    digest = digest_of(mismatch.key)
    first = since.get(digest, seen)
    return {
        "_id": {"n": str(mismatch.namespace), "h": digest},
        "key": mismatch.key,
        "type": mismatch.difference.value,
        "fields": [asdict(each) for each in mismatch.fields],
        **_destination_row(mismatch.destination),
        "first": first,
        "last": seen,
        "seconds": seen - first,
    }


def read_document_mismatch(row: Document) -> DocumentMismatch:
    return DocumentMismatch(
        namespace=read_namespace(row["_id"]["n"]),
        key=row["key"],
        difference=Difference(row["type"]),
        fields=tuple(FieldDifference(**each) for each in row["fields"]),
        destination=_read_destination(row),
    )


def definition_mismatch_row(mismatch: DefinitionMismatch, seen: float) -> Document:
    return {
        "_id": {
            "n": str(mismatch.namespace),
            "a": mismatch.aspect.value,
            "c": mismatch.component,
        },
        "type": mismatch.difference.value,
        "detail": mismatch.detail,
        **_destination_row(mismatch.destination),
        "last": seen,
    }


def read_definition_mismatch(row: Document) -> DefinitionMismatch:
    return DefinitionMismatch(
        namespace=read_namespace(row["_id"]["n"]),
        difference=Difference(row["type"]),
        aspect=Aspect(row["_id"]["a"]),
        component=row["_id"]["c"],
        detail=row["detail"],
        destination=_read_destination(row),
    )


def _destination_row(name: Namespace | None) -> Document:
    """Return the optional field `destination` of a row, as a document; empty if `name` is None.

    The rows of earlier versions have no such field.
    """
    return {} if name is None else {"destination": str(name)}


def _read_destination(row: Document) -> Namespace | None:
    return read_namespace(row["destination"]) if "destination" in row else None


def stored(mismatch: Mismatch, row: Document, generation: int) -> StoredMismatch:
    page_token = bson.encode({"_id": row["_id"]}).hex()
    return StoredMismatch(mismatch, generation, row["first"], row["last"], page_token)


def read_page_token(page_token: str) -> Document:
    """Decode a page token to the `_id` of a saved mismatch. Raise ValueError if the token is invalid."""
    try:
        found = bson.decode(bytes.fromhex(page_token))["_id"]
    except (BSONError, ValueError, KeyError) as error:
        raise ValueError(_invalid(page_token)) from error
    if not isinstance(found, dict):
        raise ValueError(_invalid(page_token))
    return found


def _invalid(page_token: str) -> str:
    return f"{page_token!r} is not a page token; send the value of 'place' from an earlier answer"


def is_of_definition(found: Document) -> bool:
    """Return whether a saved mismatch with the `_id` `found` is a definition mismatch, not a document mismatch."""
    return "a" in found
