"""Variants of a sync over links that are slow: compressed messages, and several instances.

Both clusters are behind proxies, which disturb only the messages of the service, and only while it is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tests.bench.proxied import Proxied
from tests.bench.variants import Variant, instances
from tests.support.proxy import Network
from verifier.cluster.connect import check_uri
from verifier.runtime.errors import OperationError

_COMPRESSORS = ("zlib", "zstd", "snappy")
_INSTANCES = ("a", "b")


@contextmanager
def compressing(mbit: int) -> Iterator[list[Variant]]:
    """Yield a variant without compression, and one for each available compressor.

    Each cluster has a link of `mbit` Mbit/s in each direction.
    """
    with Network() as network:
        settings: dict[str, Any] = _clusters(network)
        settings["during"] = lambda: network.slow(bytes_per_second=mbit * 1e6 / 8)
        yield [
            Variant("no compression", **settings),
            *(
                Variant(
                    each, run=partial(instances, uri_options=f"&compressors={each}"), **settings
                )
                for each in filter(_is_available, _COMPRESSORS)
            ),
        ]


@contextmanager
def sharing(delay: int) -> Iterator[list[Variant]]:
    """Yield a variant with one instance, and one with two instances that share the sync.

    `delay` is the round-trip time to each cluster, in milliseconds.
    """
    with Network() as network:
        settings: dict[str, Any] = _clusters(network)
        settings["during"] = lambda: network.slow(latency=delay / 2000)
        yield [
            Variant("one instance", **settings),
            Variant(
                "two instances",
                run=partial(instances, names=_INSTANCES),
                options=lambda data_set: {"instances": _INSTANCES},
                **settings,
            ),
        ]


def _clusters(network: Network) -> dict[str, Any]:
    """Return the fields of a variant whose clusters are behind proxies of `network`."""
    new_cluster = partial(Proxied, network=network)
    return {"source": new_cluster, "destination": new_cluster}


def _is_available(compressor: str) -> bool:
    """Return whether the package for this compressor is installed."""
    try:
        check_uri(f"mongodb://host/?compressors={compressor}")
    except OperationError:
        return False
    return True
