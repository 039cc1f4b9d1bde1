"""The table of the benchmarks, by name. Each benchmark yields its results one after another."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.bench import (
    applying,
    copying,
    crowd,
    delayed,
    downtime,
    indexing,
    linking,
    report,
    rereading,
    sharding,
    spooling,
    variants,
    verifying,
)
from tests.bench.data import data_set

Say = Callable[[str], None]


class Shown(NamedTuple):
    """A result as a text table and as a dict for JSON."""

    table: str
    document: dict[str, Any]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark. `options` are the names of the command line options that `run` obeys."""

    run: Callable[[Namespace, Say], Iterator[Shown]]
    options: tuple[str, ...] = ()
    by_default: bool = False


def _shown(result: report.Result) -> Shown:
    return Shown(report.table(result), report.document(result))


def _copy(options: Namespace, say: Say) -> Iterator[Shown]:
    for name in options.sets:
        chosen = data_set(name, options.documents)
        yield _shown(copying.benchmark(chosen, options.rounds, say))


def _apply(options: Namespace, say: Say) -> Iterator[Shown]:
    for name in options.backlogs:
        yield _shown(applying.benchmark(name, options.events, options.rounds, say))


def _verify(options: Namespace, say: Say) -> Iterator[Shown]:
    for name in options.sets:
        chosen = data_set(name, options.documents)
        yield _shown(verifying.benchmark(chosen, options.rounds, say))


def _downtime(options: Namespace, say: Say) -> Iterator[Shown]:
    for number in options.collections:
        steps = downtime.benchmark(number, say)
        yield Shown(downtime.table(steps), downtime.document(steps))


def _delayed(options: Namespace, say: Say) -> Iterator[Shown]:
    chosen = data_set("medium", options.documents)
    yield from map(_shown, delayed.documents(chosen, options.delays, options.rounds, say))
    for name in options.backlogs:
        found = delayed.events(name, options.events, options.delays, options.rounds, say)
        yield _shown(found)


def _spool(options: Namespace, say: Say) -> Iterator[Shown]:
    for name in options.backlogs:
        yield _shown(spooling.benchmark(name, options.events, options.rounds, say))


def _crowd(options: Namespace, say: Say) -> Iterator[Shown]:
    latencies = crowd.benchmark(say)
    yield Shown(crowd.table(latencies), crowd.document(latencies))


def _shards(options: Namespace, say: Say) -> Iterator[Shown]:
    chosen = sharding.variants()
    yield from _copies(f"(routers: {sharding.routers()})", chosen, options, say)
    yield from _events(f"(routers: {sharding.routers()})", chosen, options, say)


def _indexes(options: Namespace, say: Say) -> Iterator[Shown]:
    yield from _copies("with 10 indexes", indexing.variants(), options, say)


def _compression(options: Namespace, say: Say) -> Iterator[Shown]:
    with linking.compressing(options.mbit) as chosen:
        yield from _copies(f"over {options.mbit} Mbit/s", chosen, options, say)
        yield from _events(f"over {options.mbit} Mbit/s", chosen, options, say)


def _instances(options: Namespace, say: Say) -> Iterator[Shown]:
    with linking.sharing(options.delay) as chosen:
        yield from _copies(f"at {options.delay} ms", chosen, options, say)
        yield from _events(f"at {options.delay} ms", chosen, options, say)


def _diffs(options: Namespace, say: Say) -> Iterator[Shown]:
    yield from _events("with and without diffs", rereading.variants(), options, say)


def _copies(
    suffix: str, chosen: list[variants.Variant], options: Namespace, say: Say
) -> Iterator[Shown]:
    """Yield the results of copying each requested data set in the variants `chosen`. `suffix` ends their titles."""
    for name in options.sets:
        documents = data_set(name, options.documents)
        title = f"copy {name} {suffix}"
        yield _shown(variants.copy(title, documents, chosen, options.rounds, say))


def _events(
    suffix: str, chosen: list[variants.Variant], options: Namespace, say: Say
) -> Iterator[Shown]:
    """Yield the results of applying each requested backlog in the variants `chosen`. `suffix` ends their titles."""
    for name in options.backlogs:
        title = f"apply {name} {suffix}"
        yield _shown(variants.events(title, name, options.events, chosen, options.rounds, say))


_DOCUMENTS = ("rounds", "sets", "documents")
_EVENTS = ("rounds", "backlogs", "events")
_BOTH = (*_DOCUMENTS, "backlogs", "events")

BENCHMARKS = {
    "copy": Benchmark(_copy, _DOCUMENTS, by_default=True),
    "apply": Benchmark(_apply, _EVENTS, by_default=True),
    "verify": Benchmark(_verify, _DOCUMENTS, by_default=True),
    "downtime": Benchmark(_downtime, ("collections",), by_default=True),
    "delayed": Benchmark(_delayed, ("rounds", "documents", "backlogs", "events", "delays")),
    "spool": Benchmark(_spool, _EVENTS),
    "crowd": Benchmark(_crowd),
    "shards": Benchmark(_shards, _BOTH),
    "indexes": Benchmark(_indexes, _DOCUMENTS),
    "compression": Benchmark(_compression, (*_BOTH, "mbit")),
    "instances": Benchmark(_instances, (*_BOTH, "delay")),
    "diffs": Benchmark(_diffs, _EVENTS),
}
