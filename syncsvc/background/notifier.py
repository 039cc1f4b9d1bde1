"""Posts notices of state changes and warnings of a sync to a webhook."""

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
        """Post the notices of what changed in the sync since the last call (see `news`); called every second."""
        self._told, notices = news(self._told, sync, time())
        for each in notices:
            self._webhook.post(each.event, each.at, **each.fields)
