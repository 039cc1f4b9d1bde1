"""Connection limits of the HTTP server, so that clients that are idle or do not read their answers block no others.

Without this module, waitress accepts no connection at its limit until idle connections time out. All functions here run
in the thread of the waitress event loop, the only thread that opens and closes connections.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from waitress.channel import HTTPChannel

# The usual maximum of connections. To accept more, those that have been idle longest are closed; connections with an
# unfinished request stay open, even beyond this number.
MOST_CONNECTIONS = 256
# A connection without traffic for this long is closed, unless its client is waiting for an answer. In seconds.
LONGEST_SILENCE = 60

# How often waitress closes idle connections, in seconds.
CLEANUP_INTERVAL = 15


def make_room(sockets: Mapping[int, Any]) -> None:
    """Close connections whose client does not read its answer. At the limit, make room for one more connection.

    To make room, close connections without an unfinished request, beginning with the one that has been idle longest.
    A request whose answer is still being sent counts as finished only if idle connections are the minority: otherwise,
    clients that do not read their answers could occupy all connections.
    `sockets` is the socket map of waitress: connections and listening sockets by file descriptor.
    """
    channels = [each for each in sockets.values() if isinstance(each, HTTPChannel)]
    _close_unread(channels)
    excess = len(channels) - MOST_CONNECTIONS + 1
    if excess > 0:
        # Only this thread adds requests, so a connection without a request cannot get one in the meantime.
        quiet = [each for each in channels if not each.requests]
        idle = [each for each in quiet if not each.total_outbufs_len]
        closable = idle if len(idle) > MOST_CONNECTIONS // 2 else quiet
        for channel in sorted(closable, key=lambda each: each.last_activity)[:excess]:
            channel.handle_close()


def _close_unread(channels: Iterable[HTTPChannel]) -> None:
    """Close connections whose client has not read any part of its answer for `LONGEST_SILENCE` seconds.

    Such a client blocks a request thread. waitress never closes these connections, because it only checks connections
    without a request.
    """
    for channel in channels:
        if channel.requests and _is_unread(channel):
            # A sending thread holds this lock. Check again under the lock: only data that could not be sent is unread.
            with channel.outbuf_lock:
                if _is_unread(channel):
                    channel.handle_close()


def _is_unread(channel: HTTPChannel) -> bool:
    silence = time.time() - channel.last_activity
    return bool(channel.total_outbufs_len) and silence > LONGEST_SILENCE
