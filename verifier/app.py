"""Makes the Flask app of the verifier."""

from __future__ import annotations

from flask import Flask

from verifier.api import Service, blueprint
from verifier.runtime.httpd import install_error_handlers


def create_app(service: Service) -> Flask:
    app = Flask("verifier")
    install_error_handlers(app)
    app.register_blueprint(blueprint(service))
    return app
