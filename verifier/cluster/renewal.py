"""Replaces the credentials of open MongoDB clients when the files with the credentials change, without a restart.

New credentials are first tried on a separate client. If they work, all new connections of the client in use log in with
the new credentials. So a wrong file changes nothing, and no work is interrupted.
"""

from __future__ import annotations

import logging
from typing import Any

from pymongo.errors import PyMongoError

from verifier.cluster import failures
from verifier.cluster.cluster import Cluster, open_cluster
from verifier.cluster.connect import (
    Client,
    adopt_credentials,
    check_uri,
    connect,
    without_credentials,
)
from verifier.cluster.connection_source import (
    INVALID_CONNECTION_FILE,
    ConnectionSource,
    Credentials,
)
from verifier.runtime import waits
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

_log = logging.getLogger(__name__)

# How often the files are read, and the pause after credentials that could not be used, in seconds. The pause is longer,
# because servers may lock a user after many refused attempts.
_POLL = 1.0
_PAUSE = 10.0
_REMEDY = (
    "The former credentials stay in use, and the files are read again every ten seconds. Correct the file with the "
    "connection string, the TLS files that the connection string names, or the user on the cluster. If parts other "
    "than the passwords and the names of TLS files have changed, restart this process."
)


class Renewal:
    """Opens clusters, and keeps their credentials up to date while `run` runs."""

    def __init__(self, application: str) -> None:
        self._application = application
        self._opened: list[_Opened] = []

    def open_cluster(self, source: ConnectionSource) -> Cluster:
        """Connect to the cluster that `source` names, and return the cluster.

        If its credentials come from files, `run` keeps them up to date. Raises OperationError if the connection string
        or its TLS files cannot be read, or if the cluster cannot be used.
        """
        credentials = source.read()
        cluster = open_cluster(source.cluster, credentials.uri, self._application)
        if source.may_change:
            with failures.named_errors():
                opened = _Opened(cluster, source, credentials, self._application)
            self._opened.append(opened)
        return cluster

    def run(self, stop: StopToken) -> None:
        """Read the credential files every second, and use changed credentials. Raise `Cancelled` when stopped.

        If the credentials of a cluster cannot be used, the next read follows after ten seconds.
        """
        while True:
            # Renew the credentials of all clusters, even if one of them fails.
            current = [each.renew() for each in [*self._opened]]
            stop.sleep(_POLL if all(current) else _PAUSE)


class _Opened:
    """An open cluster, and the credentials that its client uses."""

    def __init__(
        self,
        cluster: Cluster,
        source: ConnectionSource,
        credentials: Credentials,
        application: str,
    ) -> None:
        self._cluster = cluster
        self._source = source
        self._in_use = credentials
        self._application = application
        self._users = _users(cluster.client)
        self._wait: waits.Wait | None = None
        # The last logged refusal: the credentials, None if they could not be read, and the reason.
        self._logged: tuple[Credentials | None, str] | None = None

    def renew(self) -> bool:
        """Read the credential files, and use new credentials. Return False if the files or credentials are unusable."""
        found = None
        try:
            found = self._source.read()
            if found != self._in_use:
                self._use(found)
        except OperationError as error:
            self._report(found, error.description)
            return False
        except PyMongoError as error:
            self._report(found, f"{failures.text_of(error)}.")
            return False
        if self._wait is not None:
            waits.end(self._wait)
            self._wait = self._logged = None
        return True

    def _use(self, found: Credentials) -> None:
        # Check the connection string first, because the driver's own errors can quote a part of a password.
        check_uri(found.uri)
        if without_credentials(found.uri) != without_credentials(self._in_use.uri):
            raise OperationError(
                INVALID_CONNECTION_FILE,
                "The new connection string differs from the former one in more than the passwords and the names of "
                "TLS files. Correct the new connection string, or restart this process to use it.",
            )
        with connect(found.uri, self._application, self._cluster.name) as trial:
            if _users(trial) != self._users:
                # Sessions belong to a user: the servers could not refuse late writes of the former user.
                raise OperationError(
                    INVALID_CONNECTION_FILE,
                    "The new certificate belongs to a different user than the former certificate.",
                )
            adopt_credentials(self._cluster.client, trial)
        self._in_use = found
        _log.info(
            "New connections to a cluster use new credentials.",
            extra={"cluster": self._cluster.name},
        )

    def _report(self, found: Credentials | None, text: str) -> None:
        """Show a refusal of the credentials `found` as a warning; log it if the credentials or the reason are new."""
        what = f"The credentials of the cluster {self._cluster.name} cannot be renewed: {text.removesuffix('.')}"
        if self._wait is None:
            self._wait = waits.begin(what, _REMEDY)
        self._wait.what = what
        if self._logged == (found, text):
            return
        self._logged = found, text
        _log.error(
            "The credentials of a cluster cannot be renewed; the former ones stay in use. The field `error` gives the "
            "reason: correct the connection file, its TLS files, or the user on the cluster.",
            extra={"cluster": self._cluster.name, "error": text},
        )


def _users(client: Client) -> list[dict[str, Any]]:
    status = client.admin.command("connectionStatus")
    users: list[dict[str, Any]] = status["authInfo"]["authenticatedUsers"]
    return users
