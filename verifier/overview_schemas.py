"""The schemas of the overview of a check: its query parameters and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marshmallow import fields, post_load, validate

from verifier.answer_schemas import Progress
from verifier.overview import SortKey, TableRequest
from verifier.runtime.openapi import SuccessAnswer, always, nullable
from verifier.runtime.recent import RECENT_COMMANDS
from verifier.runtime.schemas import Strict, TablePart


class NamespacesTableSchema(TablePart):
    """The query parameters of `GET /api/v1/overview/namespaces`; loads into TableRequest."""

    search = fields.String(
        validate=validate.Length(max=1_000),
        metadata={
            "description": "Show only namespaces whose name contains this text, regardless of case."
        },
    )
    different = fields.Boolean(
        load_default=False,
        metadata={"description": "Show only namespaces with documents that differ."},
    )
    sort = fields.Enum(
        SortKey,
        by_value=True,
        load_default=SortKey.NAME,
        metadata={
            "description": "The order of the namespaces: by name, documents, bytes or mismatches."
        },
    )

    @post_load
    def _make(self, data: Mapping[str, Any], **kwargs: Any) -> TableRequest:
        return TableRequest(**data)


class _Step(Strict):
    text = always(fields.String, "What to do next.")
    command = nullable(
        fields.String, "The command of this step; null if the step needs no command."
    )


class _Overview(Strict):
    summary = always(fields.String, "The current state of the check, as a sentence.")
    next = nullable(
        fields.Nested, "The operator's next step; null if the operator only has to wait.", _Step
    )
    commands = always(
        fields.List, "The commands that the phase of the check allows.", fields.String()
    )
    started = nullable(fields.Float, "When the check began, in UNIX seconds; null without a check.")
    ended = nullable(
        fields.Float,
        "When the check ended, in UNIX seconds; null until the check ends, or if its end was not saved.",
    )
    secondsLeft = nullable(
        fields.Float,
        "The estimated time until all documents are compared once, in seconds; null if it is unknown, or if all "
        "documents have been compared once.",
    )
    namespaces = always(
        fields.Integer, "The number of rows of the table in GET /api/v1/overview/namespaces."
    )
    differentDocuments = always(fields.Integer, "The number of documents that differ.")
    differentDefinitions = always(
        fields.Integer, "The number of differences in definitions and in numbers of documents."
    )
    recentCommands = RECENT_COMMANDS
    progress = always(
        fields.Nested, "The field `progress` of the answer to GET /api/v1/progress.", Progress
    )


class OverviewAnswer(SuccessAnswer):
    overview = always(
        fields.Nested,
        "The content of the verifier's web page: the progress, explanations and results.",
        _Overview,
    )


class _NamespaceRow(Strict):
    namespace = always(fields.String, "The name of the namespace on the source.")
    comparedDocuments = always(
        fields.Integer, "The number of documents that the first generation has compared."
    )
    totalDocuments = nullable(
        fields.Integer,
        "The estimated number of documents that the first generation compares; null if unknown.",
    )
    comparedBytes = always(
        fields.Integer,
        "The size of the source's documents that the first generation has compared, in bytes.",
    )
    totalBytes = nullable(
        fields.Integer,
        "The estimated size of the source's documents that the first generation compares, in bytes; null if unknown.",
    )
    tasksDone = always(fields.Integer, "The number of finished tasks of the first generation.")
    tasks = always(fields.Integer, "The number of tasks of the first generation.")
    mismatches = always(fields.Integer, "The number of documents that differ.")


class NamespacesTableAnswer(SuccessAnswer):
    """A part of the table of namespaces."""

    namespaces = always(fields.List, "The requested rows.", fields.Nested(_NamespaceRow))
    total = always(fields.Integer, "The number of namespaces that match the request, on all pages.")
