"""Creates the Flask app of the sync service."""

from __future__ import annotations

from flask import Flask
from prometheus_client.registry import Collector

from syncsvc import page
from syncsvc.api import blueprint
from syncsvc.health import endpoints
from syncsvc.openapi import description
from syncsvc.reports.metrics import TABLE, WEBHOOK_TABLE
from syncsvc.service import Service
from verifier.runtime import openapi
from verifier.runtime.access import TokenFile
from verifier.runtime.metrics import Snapshot, endpoint
from verifier.runtime.protected_app import protected_app
from verifier.runtime.recent import RecentCommands
from verifier.runtime.sites import LOCALHOST
from verifier.runtime.webhook import Webhook


def create_app(
    service: Service,
    hosts: frozenset[str] = LOCALHOST,
    tokens: TokenFile | None = None,
    recent: RecentCommands | None = None,
    webhook: Webhook | None = None,
) -> Flask:
    """Return the Flask app. See `protected_app` for `hosts`, `tokens`, `recent`, and the requests that the app refuses.

    The web page, `/livez` and `/readyz` need no token. `/metrics` includes the metrics of `webhook`.
    """
    recent = recent or RecentCommands()
    app = protected_app("syncsvc", hosts, tokens, recent)
    app.register_blueprint(blueprint(service, recent))
    app.register_blueprint(page.blueprint())
    app.register_blueprint(endpoints(service))
    metrics: list[Collector] = [Snapshot(TABLE, service.sync)]
    if webhook is not None:
        metrics.append(Snapshot(WEBHOOK_TABLE, lambda: webhook.figures))
    app.register_blueprint(endpoint(*metrics))
    app.register_blueprint(openapi.endpoint(description))
    return app
