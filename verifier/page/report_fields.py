"""The schemas that all reports share: the query parameters, and fields of the answers."""

from __future__ import annotations

from enum import Enum

from marshmallow import fields

from verifier.page.report_page import Level
from verifier.runtime.openapi import always, nullable
from verifier.runtime.schemas import Strict


class Format(Enum):
    """The formats of a report."""

    JSON = "json"
    HTML = "html"


class ReportSchema(Strict):
    """The query parameters of `GET /api/v1/report`."""

    format = fields.Enum(
        Format,
        by_value=True,
        metadata={
            "description": "The format of the report. Without it, the header Accept decides: a browser gets HTML, "
            "other programs JSON."
        },
    )


def known_time(meaning: str) -> fields.String:
    """Return a schema field for a time in UTC, which is null if unknown. `meaning` begins its description."""
    found: fields.String = nullable(
        fields.String, f"{meaning}, in UTC; null if the time is unknown."
    )
    return found


class CreatedFields(Strict):
    at = known_time("The time at which the report was made")
    version = always(fields.String, "The version of the process that made the report.")
    host = always(fields.String, "The host of the process that made the report.")


class Headline(Strict):
    level = always(
        fields.Enum,
        "The severity of the result: good, warning (needs attention) or bad; info without a final result.",
        Level,
        by_value=True,
    )
    text = always(fields.String, "The result in one or two sentences.")


class ClusterFields(Strict):
    address = always(fields.String, "The host and port of the cluster's primary, or of a mongos.")
    topology = always(fields.String, "The topology of the cluster.")
    shards = always(fields.Integer, "The number of shards of the cluster; 0 for a replica set.")
    version = always(fields.String, "The version of the cluster's servers.")
    identity = always(fields.String, "The ID of the replica set or sharded cluster.")


class SenderFields(Strict):
    caller = nullable(
        fields.String,
        "The name of the client's token (its role, if the token file gives no name), or the name under which the "
        "process itself sent the command; null if neither exists.",
    )
