"""Posts notices to a webhook: once a second, one notice for each change of the state and of the warnings."""

from __future__ import annotations

from time import time

from syncsvc.reports.notices import Told, news
from syncsvc.reports.sync import Sync
from verifier.runtime.webhook import Webhook


class Notifier:
    """Posts the notices of one process to its webhook."""

    def __init__(self, webhook: Webhook) -> None:
        self._webhook = webhook
        self._told = Told()

    def watch(self, sync: Sync) -> None:
        """Post a notice to the webhook for each change of the state and of the warnings since the last call."""
        self._told, notices = news(self._told, sync, time())
        for each in notices:
            self._webhook.post(each.event, each.at, **each.fields)
