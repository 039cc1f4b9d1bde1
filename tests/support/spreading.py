"""Distributes tests over several processes (`pytest -n 2`), each with its own clusters.

A module with unit tests runs in one process. In other modules, the tests with a sharded source stay together, and so do
the tests with only a sharded destination: otherwise, several processes would have to start such clusters. The remaining
tests of a module stay together if the module has module-scoped fixtures; otherwise, they run in any process. The tests
of test_behaviours.py are grouped by round instead. With `--full`, several processes share the flights of
test_matrix.py, which take two hours. `--dist loadgroup` is meant for this, but pytest-xdist 3.8 does not get the groups
from pytest 9.

A process that has run a test gets another one with clusters of the same kind, as long as there are any: stopping these
clusters and starting others takes as much CPU time as some tests. The processes begin with different kinds.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_SHARED = 'scope="module"'
_THREE_MEMBERS = "mark.three_members"
_FOLDERS_WITH_THREE_MEMBERS = ("tests/faults/", "tests/model/")
_FOLDER_WITHOUT_CLUSTERS = "tests/unit/"
# The names of topologies in `across` (tests/support/pair.py).
_SHARDED = {"TO_SHARDED": "to sharded", "FROM_SHARDED": "from sharded", "SHARDED": "from sharded"}
_BEHAVIOURS = "tests/integration/test_behaviours.py"
_MATRIX = "tests/faults/test_matrix.py"
_MATRIX_PROCESSES = 3


class Kind(Enum):
    """The kind of clusters that a test shares with others.

    SHARDED: at least one of the two clusters is sharded. THREE_MEMBERS and ONE_MEMBER: replica sets of this size. NONE:
    the test needs no clusters.
    """

    SHARDED = "sharded"
    THREE_MEMBERS = "three members"
    ONE_MEMBER = "one member"
    NONE = "none"


class Spreading(LoadScopeScheduling):
    """A scheduler of pytest-xdist that starts with the largest groups of tests, and leaves single tests for the end.

    Each process gets tests of one kind after another. Tests without clusters come last, because they are short: then
    all processes end at about the same time.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(self._next_for(node), last=False)
        super()._assign_work_unit(node)

    def _next_for(self, node: WorkerController) -> str:
        """Return the name of the next group of tests for a process.

        The group has the same kind as the latest group of the process. If no group of that kind is left, the next group
        has the kind that the fewest processes run now.
        """
        latest = self._latest(node)
        for scope in self.workqueue:
            if self._kind(scope) is latest:
                return scope
        first: dict[Kind, str] = {}
        for scope in self.workqueue:
            first.setdefault(self._kind(scope), scope)
        running = Counter(map(self._latest, self.nodes))
        return first[min(first, key=lambda kind: (kind is Kind.NONE, running[kind]))]

    def _latest(self, node: WorkerController) -> Kind | None:
        assigned = self.assigned_work.get(node)
        return self._kind(next(reversed(assigned))) if assigned else None

    def _split_scope(self, nodeid: str) -> str:
        module, _, test = nodeid.partition("::")
        if module.startswith(_FOLDER_WITHOUT_CLUSTERS):
            # Keep these groups few: for each group that a process runs, xdist searches all earlier ones.
            return module
        if module == _BEHAVIOURS:
            # [behaviour-round]: all behaviours of a round share its sync.
            return f"{module} {test.partition('-')[2]}"
        if module == _MATRIX and self.config.getoption("full"):
            flight = test.rpartition("[")[2].rstrip("]")
            return f"{module} {int(flight) % _MATRIX_PROCESSES if flight.isdigit() else 0}"
        for parameter in test.rpartition("[")[2].rstrip("]").split("-"):
            if parameter in _SHARDED:
                return f"{module} {_SHARDED[parameter]}"
        return module if _SHARED in _text(self.config.rootpath / module) else nodeid

    def _kind(self, scope: str) -> Kind:
        return kind_of(scope, self.config.rootpath)


@cache
def kind_of(scope: str, root: Path) -> Kind:
    """Return the kind of clusters for a group of tests.

    `scope` is the name of the group: `tests/m.py::test`, `tests/m.py group` or `tests/m.py`. `root` is the folder that
    contains `tests`.
    """
    module = scope.partition("::")[0].partition(" ")[0]
    if module.startswith(_FOLDER_WITHOUT_CLUSTERS):
        return Kind.NONE
    rest = scope.removeprefix(module)
    topology = rest.partition("[")[2] if rest.startswith("::") else rest
    if "sharded" in topology.lower() and "REPLICA_SETS" not in topology:
        return Kind.SHARDED
    if module.startswith(_FOLDERS_WITH_THREE_MEMBERS) or _THREE_MEMBERS in _text(root / module):
        return Kind.THREE_MEMBERS
    return Kind.ONE_MEMBER


@cache
def _text(module: Path) -> str:
    return module.read_text()
