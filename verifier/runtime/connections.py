"""Keeps room for new connections: idle, half-sent and unread ones must not keep others from being answered.

waitress alone stops accepting at its limit, and waits for idle connections to time out. All of this runs in the thread
of its loop, which is the only one that opens and closes connections.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from waitress.channel import HTTPChannel

# Beyond this many, the connections that were quiet for the longest time are closed.
MOST_CONNECTIONS = 256
# A connection on which no byte moves for so long is closed, unless a request of it is being worked on. In seconds.
LONGEST_SILENCE = 60

# How often waitress closes silent connections, in seconds.
CLEANUP_INTERVAL = 15


def make_room(sockets: Mapping[int, Any]) -> None:
    """Close quiet connections of waitress until one more has room, and those whose answer is not read."""
    channels = [each for each in sockets.values() if isinstance(each, HTTPChannel)]
    _close_unread(channels)
    excess = len(channels) - MOST_CONNECTIONS + 1
    if excess > 0:
        # Only this thread adds requests, so a connection without one cannot get one meanwhile.
        quiet = [each for each in channels if not each.requests]
        for channel in sorted(quiet, key=lambda each: each.last_activity)[:excess]:
            channel.handle_close()


def _close_unread(channels: Iterable[HTTPChannel]) -> None:
    """Close connections on which the thread of a request waits for a reader that reads nothing.

    waitress never closes these, because it only looks at connections without a request.
    """
    for channel in channels:
        if channel.requests and _is_unread(channel):
            # A thread that is about to send holds the lock: only what it could not send is unread.
            with channel.outbuf_lock:
                if _is_unread(channel):
                    channel.handle_close()


def _is_unread(channel: HTTPChannel) -> bool:
    silence = time.time() - channel.last_activity
    return bool(channel.total_outbufs_len) and silence > LONGEST_SILENCE
