"""The endpoints for supervisors: `/livez` says whether the process answers, `/readyz` whether it can do its work."""

from __future__ import annotations

from typing import Any

from flask import Blueprint

from syncsvc.api import SUCCESS
from syncsvc.errors import NOT_READY
from syncsvc.service import Service
from verifier.runtime.access import public
from verifier.runtime.errors import OperationError


def endpoints(service: Service) -> Blueprint:
    """Return a Flask blueprint with `/livez` and `/readyz`, which need no token and do not contact the clusters."""
    health = Blueprint("health", __name__)

    @health.get("/livez")
    @public
    def livez() -> dict[str, Any]:
        return SUCCESS

    @health.get("/readyz")
    @public
    def readyz() -> dict[str, Any]:
        reason = service.why_not_ready()
        if reason is not None:
            raise OperationError(NOT_READY, reason)
        return SUCCESS

    return health
