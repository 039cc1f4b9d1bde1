"""A candidate for the benchmark of verification: the comparison code of the verifier alone.

It compares each document once (no generations), and saves no state.
"""

from __future__ import annotations

from tests.bench.data import DATABASE
from verifier.cluster.connect import connect
from verifier.cluster.inventory import extent
from verifier.cluster.namespace import Namespace
from verifier.cluster.ranges import Range, split
from verifier.compare.comparison import Comparison
from verifier.compare.documents import Mode
from verifier.compare.scope import NamespacePair
from verifier.runtime.garbage import collect_rarely
from verifier.runtime.malloc import keep_large_buffers
from verifier.runtime.tasks import Channel, StopToken, TaskGroup

_THREADS = 4
_RANGE_BYTES = 32 << 20


def compare(source: str, destination: str) -> None:
    """Compare all documents in the database `DATABASE` of two clusters, given by their connection strings.

    Raises RuntimeError if a document differs.
    """
    keep_large_buffers()
    collect_rarely()
    stop = StopToken()
    clients = connect(source, "bench"), connect(destination, "bench")
    comparison = Comparison(*clients, Mode.BINARY, None, stop)
    with TaskGroup("verify", stop) as group:
        queue: Channel[tuple[Namespace, Range]] = Channel(1 << 30, group.stop)
        for name in clients[0][DATABASE].list_collection_names():
            namespace = Namespace(DATABASE, name)
            count = clients[0][DATABASE][name].estimated_document_count()
            size = extent(clients[0], namespace).bytes
            for each in split(clients[0], namespace, count, size, _RANGE_BYTES, stop):
                queue.put((namespace, each), 1)
        queue.close()
        for number in range(_THREADS):
            group.spawn(str(number), _work, comparison, queue)


def _work(comparison: Comparison, queue: Channel[tuple[Namespace, Range]]) -> None:
    for namespace, portion in queue:
        names = NamespacePair(namespace, namespace)
        for mismatch in comparison.documents(names, portion, (None, None), lambda *_: None):
            raise RuntimeError(str(mismatch))
