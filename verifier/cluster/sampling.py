"""The limits for samples of a collection that the server draws with `$sample`.

The server draws a small sample by one random lookup for each document. For a larger sample, it reads the whole
collection and sorts it, which can take longer than the timeout of a command. A collection of at most 100 documents is
always read completely. On a sharded cluster, each shard draws the whole sample from its own documents.
"""

from __future__ import annotations

# The maximum size, in bytes, of a collection that may always be read completely, because that takes little time.
MOST_READ = 64 << 20
# The server draws samples of up to 5 % of the documents by random lookups. This limit is lower, because the number of
# documents is an estimate.
_LARGEST_PART = 0.04


def largest_sample(documents: int, shards: int) -> int:
    """Return how many documents can be sampled without reading the whole collection; at least 1.

    The collection has this number of `documents`, spread evenly over this number of `shards`.
    """
    return max(1, int(documents / shards * _LARGEST_PART))
