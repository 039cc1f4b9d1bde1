"""The Flask app of the verifier."""

from __future__ import annotations

from flask import Flask
from prometheus_client.registry import Collector

from verifier import page
from verifier.api import Service, blueprint
from verifier.metrics import TABLE, WEBHOOK_TABLE
from verifier.openapi import description
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
    webhook: Webhook | None = None,
) -> Flask:
    """Return the Flask app, which refuses requests whose `Host` header is neither an IP address nor one of `hosts`.

    With `tokens`, the app also refuses requests without a token that allows them. With `webhook`, its metrics include
    the metrics of the webhook.
    """
    app = Flask("verifier", static_folder=None)
    install_error_handlers(app)
    log_requests(app)
    refuse_other_sites(app, hosts)
    require_tokens(app, tokens)
    audit_commands(app)
    recent = RecentCommands()
    recent.watch(app)
    app.register_blueprint(blueprint(service, recent))
    app.register_blueprint(page.blueprint(page.OF_VERIFIER))
    metrics: list[Collector] = [Snapshot(TABLE, service.progress)]
    if webhook is not None:
        metrics.append(Snapshot(WEBHOOK_TABLE, lambda: webhook.figures))
    app.register_blueprint(endpoint(*metrics))
    app.register_blueprint(openapi.endpoint(description))
    return app
