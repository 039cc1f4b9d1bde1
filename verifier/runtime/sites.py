"""Refuses requests of foreign web pages: any page in a browser on this machine can send requests to a local port.

The headers of the browser reveal such a page. If the page made its own host name resolve to this machine (DNS
rebinding), its host name is in `Host`. If it sends a command, its site is in `Origin`. Programs such as curl send no
`Origin`, and their `Host` is the host name or address that the operator typed.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from flask import Flask, request

from verifier.runtime.access import HARMLESS
from verifier.runtime.errors import ErrorKind, OperationError
from verifier.runtime.options import Form, Option

HOST_NOT_ALLOWED = ErrorKind(
    "HostNotAllowed",
    403,
    "The Host header of the request does not name this process: a web page may have sent it (DNS rebinding).",
    "Nothing was done. In the URL, use an IP address, localhost or the name of the machine. To allow another name, add "
    "it to --allowedHosts and restart the process.",
)
ORIGIN_NOT_ALLOWED = ErrorKind(
    "OriginNotAllowed",
    403,
    "The headers of the request say that a web page of another host or port sent it.",
    "Nothing was done. Send commands with a program such as curl, without the headers Origin and Sec-Fetch-Site. "
    "If the page of this process sent the request through a proxy, make the proxy keep the Host header, and add its "
    "name to --allowedHosts.",
)

ALLOWED_HOSTS = Option(
    "allowedHosts",
    "host names that HTTP requests may use, besides IP addresses, localhost, bindAddress and the machine's name; "
    "repeat the option or separate the names by commas",
    value="NAME",
    form=Form.LIST,
)

LOCALHOST = frozenset({"localhost"})

_FOREIGN_SITES = frozenset({"cross-site", "same-site"})
_HOST = re.compile(r"(?:\[(?P<address>[^\[\]]*)\]|(?P<name>[^\[\]:]*))(?::[0-9]*)?")


def own_names(address: str, allowed: Iterable[str]) -> frozenset[str]:
    """Return the host names that requests to a process on `address` may use.

    These are localhost, `address`, the names of the machine, and `allowed`: all in lower case, without a final dot.

    The fully qualified name of the machine is only looked up if `address` is not loopback, because DNS may be slow.
    """
    names = {address, socket.gethostname(), *allowed}
    if not is_loopback(address):
        names.add(socket.getfqdn())
    return LOCALHOST.union(map(_normalized, names))


def refuse_other_sites(app: Flask, names: frozenset[str]) -> None:
    """Make the app answer requests of foreign web pages with HostNotAllowed or OriginNotAllowed.

    The Host header must be an IP address or one of `names`. For all methods but GET, HEAD and OPTIONS, the headers
    Origin and Sec-Fetch-Site must also belong to a page of the host in Host. Missing headers are accepted.
    """

    @app.before_request
    def check() -> None:
        host = request.headers.get("Host", "")
        # Only programs send no Host, such as HTTP/1.0 health checks.
        if host and not is_own_host(host, names):
            raise OperationError(
                HOST_NOT_ALLOWED,
                f"The Host header of the request is {host!r}, which is not a host name of this process.",
            )
        if request.method not in HARMLESS:
            _refuse_foreign_page(host)


def is_own_host(host: str, names: frozenset[str]) -> bool:
    """Return whether the value of a Host header is an IP address or one of the names, with or without a port."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    if found["address"] is not None:
        return _is_address(found["address"])
    return _is_address(found["name"]) or _normalized(found["name"]) in names


def _refuse_foreign_page(host: str) -> None:
    origin = request.headers.get("Origin")
    if origin is not None and not _is_same_origin(origin, host):
        raise OperationError(
            ORIGIN_NOT_ALLOWED,
            f"The header Origin of the command is {origin!r}, which does not match the header Host, {host!r}.",
        )
    site = request.headers.get("Sec-Fetch-Site", "").lower()
    if site in _FOREIGN_SITES:
        raise OperationError(
            ORIGIN_NOT_ALLOWED,
            f"The header Sec-Fetch-Site of the command is {site!r}: a web page of another host or port sent it.",
        )


def _is_same_origin(origin: str, host: str) -> bool:
    """Return whether an Origin header has the host and port of a Host header.

    The scheme is ignored, because a proxy in front of this process may speak TLS.
    """
    try:
        authority = urlsplit(origin).netloc
    except ValueError:
        return False
    return bool(authority) and authority.lower() == host.lower()


def _normalized(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def is_loopback(address: str) -> bool:
    """Return whether an address is loopback. A host name other than localhost is not resolved: the result is False."""
    return address == "localhost" or (_is_address(address) and ip_address(address).is_loopback)
