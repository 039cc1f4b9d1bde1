"""The Flask app of the verifier."""

from __future__ import annotations

from flask import Flask
from prometheus_client.registry import Collector

from verifier import page
from verifier.api import Service, blueprint
from verifier.metrics import TABLE, WEBHOOK_TABLE
from verifier.openapi import description
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
    webhook: Webhook | None = None,
) -> Flask:
    """Return the Flask app. See `protected_app` for `hosts`, `tokens`, and the requests that the app refuses.

    With `webhook`, `/metrics` includes the metrics of the webhook.
    """
    recent = RecentCommands()
    app = protected_app("verifier", hosts, tokens, recent)
    app.register_blueprint(blueprint(service, recent))
    app.register_blueprint(page.blueprint(page.OF_VERIFIER))
    metrics: list[Collector] = [Snapshot(TABLE, service.progress)]
    if webhook is not None:
        metrics.append(Snapshot(WEBHOOK_TABLE, lambda: webhook.figures))
    app.register_blueprint(endpoint(*metrics))
    app.register_blueprint(openapi.endpoint(description))
    return app
