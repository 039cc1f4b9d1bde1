"""Makes the Flask app of the verifier."""

from __future__ import annotations

from flask import Flask

from verifier.api import Service, blueprint
from verifier.metrics import TABLE
from verifier.runtime.httpd import install_error_handlers
from verifier.runtime.metrics import Snapshot, endpoint
from verifier.runtime.request_log import log_requests


def create_app(service: Service) -> Flask:
    app = Flask("verifier")
    install_error_handlers(app)
    log_requests(app)
    app.register_blueprint(blueprint(service))
    app.register_blueprint(endpoint(Snapshot(TABLE, service.progress)))
    return app
