"""Makes the Flask app of the sync service."""

from __future__ import annotations

from flask import Flask

from syncsvc.api import blueprint
from syncsvc.openapi import description
from syncsvc.reports.metrics import TABLE
from syncsvc.service import Service
from verifier.runtime import openapi
from verifier.runtime.httpd import install_error_handlers
from verifier.runtime.metrics import Snapshot, endpoint
from verifier.runtime.request_log import log_requests


def create_app(service: Service) -> Flask:
    app = Flask("syncsvc", static_folder=None)
    install_error_handlers(app)
    log_requests(app)
    app.register_blueprint(blueprint(service))
    app.register_blueprint(endpoint(Snapshot(TABLE, service.sync)))
    app.register_blueprint(openapi.endpoint(description()))
    return app
