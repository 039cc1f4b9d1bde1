"""The limits for samples of a collection that the server draws with `$sample`.

The server draws a small sample by one random lookup for each document. For a larger sample, it reads the whole
collection and sorts it, which can take longer than the timeout of a command.
"""

from __future__ import annotations

# The server draws samples of up to 5 % of the documents by random lookups. The number of documents is an estimate.
_LARGEST_PART = 0.04


def largest_sample(documents: int) -> int:
    """Return how many of a collection's `documents` can be sampled without reading the whole collection; at least 1."""
    return max(1, int(documents * _LARGEST_PART))
