"""Verifies the destination after the drain: one full comparison, then second looks at what differed.

Change events go on being applied meanwhile: what the source's own TTL deletes after the commit time reaches the
destination too. So a difference counts only when it is still there after everything up to a later time is applied.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from syncsvc.engine.parts import Parts
from syncsvc.engine.standin import stand_in
from syncsvc.errors import VERIFICATION_FAILED
from syncsvc.indexing import destined
from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.cluster.filters import Selection
from verifier.cluster.inventory import list_collections
from verifier.cluster.lookup import portions
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.compare.comparison import Comparison
from verifier.compare.definitions import compare_definitions
from verifier.compare.documents import Mode
from verifier.compare.mismatch import Aspect, DefinitionMismatch, Difference, DocumentMismatch
from verifier.compare.ranges import Keys, Portion, Range
from verifier.compare.scope import NamespacePair
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import retry
from verifier.runtime.tasks import Channel, StopToken, TaskGroup

Mismatch = DocumentMismatch | DefinitionMismatch

_log = logging.getLogger(__name__)

# How many times what differs is looked at again, each time after a drain to the source's newest time.
_LOOKS = 5
_WORKERS = 2
_SHOWN = 20
# Beyond this many suspects a collection is simply not equal, and the rest of it tells nothing new.
_MOST_SUSPECTS = 10_000


class _Findings:
    """What a pass over the documents found: how much was compared (`size` in bytes), and the keys to look at again."""

    def __init__(self) -> None:
        self.documents = 0
        self.size = 0
        self.suspects: dict[Namespace, list[bytes]] = {}
        self._lock = threading.Lock()

    def count(self, documents: int, size: int) -> None:
        with self._lock:
            self.documents += documents
            self.size += size


class Verification:
    """`drain` returns when all that the source has written by now is applied."""

    def __init__(self, parts: Parts, drain: Callable[[], None], stop: StopToken) -> None:
        self._parts = parts
        self._drain = drain
        self._stop = stop
        self._comparison = Comparison(parts.source, parts.client, Mode.BINARY, None, stop)

    def verify(self) -> None:
        """Return when source and destination hold the same. Raises OperationError VerificationFailed."""
        collections = [each for each in self._on_source() if each.kind is not Kind.VIEW]
        namespaces = [each.storage for each in collections]
        left = namespaces
        for _ in range(_LOOKS):
            left = self._compare(left)
            if not left:
                break
        else:
            raise OperationError(
                VERIFICATION_FAILED,
                f"{', '.join(map(str, left))} changed too much to be compared.",
            )
        self._settle(lambda: [each for name in namespaces for each in self._counts(name)])
        self._settle(self._definitions)

    def _compare(self, namespaces: list[Namespace]) -> list[Namespace]:
        """Compare collections; those of which only a part was compared, because so much of it differed at first."""
        findings = _Findings()
        with TaskGroup("compare", self._stop) as group:
            queue: Channel[Namespace] = Channel(1 << 30, group.stop)
            for namespace in namespaces:
                queue.put(namespace, 1)
            queue.close()
            for number in range(_WORKERS):
                group.spawn(str(number), self._work, queue, findings)
        _log.info(
            "Documents were compared.",
            extra={
                "documents": findings.documents,
                "bytes": findings.size,
                "collections": len(namespaces),
                "toLookAtAgain": sum(map(len, findings.suspects.values())),
            },
        )
        self._settle(lambda: list(self._look_again(findings.suspects)))
        return [name for name, keys in findings.suspects.items() if len(keys) >= _MOST_SUSPECTS]

    def _work(self, queue: Channel[Namespace], findings: _Findings) -> None:
        for namespace in queue:
            found = self._documents(namespace, Range(), findings.count)
            suspects = [each.key for each in islice(found, _MOST_SUSPECTS)]
            if suspects:
                findings.suspects[namespace] = suspects

    def _look_again(self, suspects: dict[Namespace, list[bytes]]) -> Iterator[DocumentMismatch]:
        for namespace, keys in suspects.items():
            for portion in portions(keys):
                yield from self._documents(namespace, Keys(tuple(portion)), _Findings().count)

    def _documents(
        self, namespace: Namespace, portion: Portion, count: Callable[[int, int], None]
    ) -> Iterator[DocumentMismatch]:
        names = NamespacePair(namespace, namespace)
        return self._comparison.documents(names, portion, (None, None), count)

    def _counts(self, namespace: Namespace) -> Iterator[DefinitionMismatch]:
        source, destination = self._comparison.counts(NamespacePair(namespace, namespace))
        if source != destination:
            detail = f"{source} on the source, {destination} on the destination"
            yield DefinitionMismatch(namespace, Difference.CONTENT, Aspect.COUNT, detail=detail)

    def _settle(self, look: Callable[[], Sequence[Mismatch]]) -> None:
        mismatches: Sequence[Mismatch] = []
        for _ in range(_LOOKS):
            self._drain()
            mismatches = look()
            if not mismatches:
                return
        raise _failed(mismatches)

    def _definitions(self) -> list[DefinitionMismatch]:
        build = self._parts.run.record.options.build_indexes
        expected = [stand_in(destined(each, build)) for each in self._on_source()]
        # Whatever the filter: the destination was empty, and may hold nothing else.
        return compare_definitions(expected, self._list(self._parts.client, None))

    def _on_source(self) -> list[CollectionSpec]:
        return self._list(self._parts.source, self._parts.selection)

    def _list(self, client: Client, selection: Selection | None) -> list[CollectionSpec]:
        return retry(
            lambda: list(list_collections(client, selection)), failures.is_transient, self._stop
        )


def _failed(mismatches: Sequence[Mismatch]) -> OperationError:
    for mismatch in mismatches[:_SHOWN]:
        _log.error("A mismatch was found.", extra={"mismatch": str(mismatch)})
    shown = "; ".join(map(str, mismatches[:3]))
    more = f"; and {len(mismatches) - 3} more" if len(mismatches) > 3 else ""
    return OperationError(
        VERIFICATION_FAILED, f"{len(mismatches)} mismatches were found: {shown}{more}."
    )
