"""Makes the Flask app of the verifier."""

from __future__ import annotations

from flask import Flask

from verifier.api import Service, blueprint
from verifier.metrics import TABLE
from verifier.openapi import description
from verifier.runtime import openapi
from verifier.runtime.httpd import install_error_handlers
from verifier.runtime.metrics import Snapshot, endpoint
from verifier.runtime.request_log import log_requests


def create_app(service: Service) -> Flask:
    app = Flask("verifier", static_folder=None)
    install_error_handlers(app)
    log_requests(app)
    app.register_blueprint(blueprint(service))
    app.register_blueprint(endpoint(Snapshot(TABLE, service.progress)))
    app.register_blueprint(openapi.endpoint(description()))
    return app
