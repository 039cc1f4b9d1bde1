"""One full comparison of two clusters: definitions, documents, counts; and a second look at what differed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.cluster.keys import canonical, id_element
from verifier.cluster.lookup import fetch
from verifier.cluster.namespace import Namespace
from verifier.cluster.rawcursor import Page, RawCursor
from verifier.compare.mismatch import Aspect, DefinitionMismatch, Difference, DocumentMismatch
from verifier.compare.pairing import DocumentPairing, compare_document
from verifier.runtime.retry import retry
from verifier.runtime.tasks import Channel, StopToken, TaskGroup

# Beyond this many suspects a collection is simply not equal, and the rest of it tells nothing new.
MOST_SUSPECTS = 10_000
_LOOKUP_KEYS = 500


@dataclass
class Findings:
    """What a pass over the documents found: how much was compared (`size` in bytes), and the keys to look at again."""

    documents: int = 0
    size: int = 0
    suspects: dict[Namespace, list[bytes]] = field(default_factory=dict)


class Comparison:
    """Compares the documents of two clusters, `workers` collections at a time. Reads with majority."""

    def __init__(self, source: Client, destination: Client, workers: int, stop: StopToken) -> None:
        self._clients = (source, destination)
        self._workers = workers
        self._stop = stop
        self._lock = threading.Lock()  # guards the findings while workers add to them

    def compare(self, namespaces: Iterable[Namespace]) -> Findings:
        """Read every document of these collections on both sides once."""
        findings = Findings()
        with TaskGroup("compare", self._stop) as group:
            queue: Channel[Namespace] = Channel(1 << 30, group.stop)
            for namespace in namespaces:
                queue.put(namespace, 1)
            queue.close()
            for number in range(self._workers):
                group.spawn(str(number), self._work, queue, findings, group.stop)
        return findings

    def look_again(self, suspects: dict[Namespace, list[bytes]]) -> list[DocumentMismatch]:
        """Fetch each suspect from both sides; the mismatches that are still there."""
        mismatches: list[DocumentMismatch] = []
        for namespace, keys in suspects.items():
            for start in range(0, len(keys), _LOOKUP_KEYS):
                mismatches.extend(self._look_up(namespace, keys[start : start + _LOOKUP_KEYS]))
        return mismatches

    def compare_counts(self, namespaces: Iterable[Namespace]) -> list[DefinitionMismatch]:
        """The number of documents by the servers' own count: the check that shares no query with the others."""
        mismatches = []
        for namespace in namespaces:
            fast = [self._count(client, namespace, exact=False) for client in self._clients]
            if fast[0] == fast[1]:
                continue
            # The stored count may be off after a server's crash; only a real count proves a difference.
            source, destination = (
                self._count(each, namespace, exact=True) for each in self._clients
            )
            if source != destination:
                detail = f"{source} on the source, {destination} on the destination"
                mismatches.append(
                    DefinitionMismatch(namespace, Difference.CONTENT, Aspect.COUNT, detail=detail)
                )
        return mismatches

    def _count(self, client: Client, namespace: Namespace, exact: bool) -> int:
        collection = client[namespace.database][namespace.collection]

        def count() -> int:
            return (
                collection.count_documents({}) if exact else collection.estimated_document_count()
            )

        return retry(count, failures.is_transient, self._stop)

    def _work(self, queue: Channel[Namespace], findings: Findings, stop: StopToken) -> None:
        def restartable(error: BaseException) -> bool:
            return failures.is_transient(error) or failures.is_cursor_lost(error)

        for namespace in queue:
            read = partial(self._compare_one, namespace, stop)
            pairing, suspects = retry(read, restartable, stop)
            with self._lock:
                findings.documents += pairing.documents
                findings.size += pairing.size
                if suspects:
                    findings.suspects[namespace] = suspects

    def _compare_one(
        self, namespace: Namespace, stop: StopToken
    ) -> tuple[DocumentPairing, list[bytes]]:
        pairing = DocumentPairing()
        command = {
            "find": namespace.collection,
            "sort": {"_id": 1},
            "hint": {"_id": 1},
            "noCursorTimeout": True,
            "readConcern": {"level": "majority"},
        }
        with ExitStack() as cursors:
            source, destination = (
                cursors.enter_context(RawCursor(client, namespace.database, command)).pages()
                for client in self._clients
            )
            found = pairing.suspects(_stoppable(source, stop), destination)
            return pairing, list(islice(found, MOST_SUSPECTS))

    def _look_up(self, namespace: Namespace, keys: list[bytes]) -> Iterator[DocumentMismatch]:
        source, destination = (
            fetch(client, namespace, keys, self._stop) for client in self._clients
        )
        for key in keys:
            value = canonical(key, id_element(key))
            found = compare_document(namespace, key, source.get(value), destination.get(value))
            if found is not None:
                yield found


def _stoppable(pages: Iterator[Page], stop: StopToken) -> Iterator[Page]:
    for page in pages:
        stop.check()
        yield page
