"""Serves a page for operators: static files, some of them shared by the pages of both programs.

The files are read once, when the process starts, so a request cannot read any other file. Pages contain no data: their
scripts request all data from the API. The headers forbid inline code, and files from other sites.
"""

from __future__ import annotations

from pathlib import Path

from flask import Blueprint, Response, request

from verifier.runtime.access import public
from verifier.runtime.errors import OperationError
from verifier.runtime.httpd import NOT_FOUND

# The files that the pages share.
SHARED = Path(__file__).parent / "static"
# The files of the verifier's own page.
OF_VERIFIER = Path(__file__).parent / "verifier"
INDEX = "index.html"

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    "Content-Security-Policy": "; ".join(
        (
            *(
                "default-src 'none'",
                "script-src 'self'",
                "style-src 'self'",
                "img-src 'self' data:",
            ),
            *("connect-src 'self'", "base-uri 'none'", "form-action 'none'"),
            *("frame-ancestors 'none'", "require-trusted-types-for 'script'"),
        )
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A browser asks each time, and gets the answer 304 unless the program was updated.
    "Cache-Control": "no-cache",
}


def blueprint(own: Path) -> Blueprint:
    """Return a blueprint that serves a page at `/`, and its files below `/page/`.

    `own` is the folder with the files of this page, including `index.html`. Requests for the files need no token,
    because the files contain no data. The page asks for a token when its requests to the API need one.
    """
    pages = Blueprint("page", __name__)
    files = {**_read(SHARED), **_read(own)}

    @pages.get("/")
    @public
    def index() -> Response:
        return _answer(INDEX, files[INDEX])

    @pages.get("/page/<name>")
    @public
    def file(name: str) -> Response:
        if name not in files:
            raise OperationError(NOT_FOUND, f"The page has no file {name}.")
        return _answer(name, files[name])

    return pages


def _read(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.suffix in _TYPES}


def _answer(name: str, content: bytes) -> Response:
    response = Response(content, content_type=_TYPES[Path(name).suffix], headers=_HEADERS)
    response.add_etag()
    response.make_conditional(request)
    return response
