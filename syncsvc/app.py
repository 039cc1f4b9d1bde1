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
from verifier.runtime.access import TokenFile, require_tokens
from verifier.runtime.audit import audit_commands
from verifier.runtime.httpd import install_error_handlers
from verifier.runtime.metrics import Snapshot, endpoint
from verifier.runtime.recent import RecentCommands
from verifier.runtime.request_log import log_requests
from verifier.runtime.sites import LOCALHOST, refuse_other_sites
from verifier.runtime.webhook import Webhook


def create_app(
    service: Service,
    hosts: frozenset[str] = LOCALHOST,
    tokens: TokenFile | None = None,
    recent: RecentCommands | None = None,
    webhook: Webhook | None = None,
) -> Flask:
    """Return the Flask app, which refuses requests whose `Host` header is neither an IP address nor one of `hosts`.

    The app also refuses commands that web pages of other sites send. With `tokens`, it refuses each request without a
    token that permits the request, except requests for the web page, `/livez` and `/readyz`. The app records its
    answered commands in `recent`. `/metrics` includes the metrics of `webhook`.
    """
    app = Flask("syncsvc", static_folder=None)
    install_error_handlers(app)
    log_requests(app)
    refuse_other_sites(app, hosts)
    require_tokens(app, tokens)
    audit_commands(app)
    recent = recent or RecentCommands()
    recent.watch(app)
    app.register_blueprint(blueprint(service, recent))
    app.register_blueprint(page.blueprint())
    app.register_blueprint(endpoints(service))
    metrics: list[Collector] = [Snapshot(TABLE, service.sync)]
    if webhook is not None:
        metrics.append(Snapshot(WEBHOOK_TABLE, lambda: webhook.figures))
    app.register_blueprint(endpoint(*metrics))
    app.register_blueprint(openapi.endpoint(description))
    return app
