"""Creates a Flask app that logs requests, refuses forbidden ones, and audits and remembers commands.

Both programs add their endpoints to the app.
"""

from __future__ import annotations

from flask import Flask

from verifier.runtime.access import TokenFile, require_tokens
from verifier.runtime.audit import audit_commands
from verifier.runtime.httpd import install_error_handlers
from verifier.runtime.recent import RecentCommands
from verifier.runtime.request_log import log_requests
from verifier.runtime.sites import refuse_other_sites


def protected_app(
    name: str, hosts: frozenset[str], tokens: TokenFile | None, recent: RecentCommands
) -> Flask:
    """Return a Flask app without endpoints.

    The app refuses requests whose `Host` header is neither an IP address nor one of `hosts`, and commands that web
    pages of other sites send. With `tokens`, it refuses each request without a token that permits the request, except
    GET, HEAD and OPTIONS requests for endpoints that are marked with `access.public`. It audits all commands, and
    records in `recent` the commands to known paths that these checks do not refuse.
    """
    app = Flask(name, static_folder=None)
    install_error_handlers(app)
    # Flask runs the checks of a request in this order, until one refuses it. So a refused request is logged, but
    # displaces no command in `recent`.
    log_requests(app)
    refuse_other_sites(app, hosts)
    require_tokens(app, tokens)
    audit_commands(app)
    recent.watch(app)
    return app
