"""Which tests go together where they run in several processes (`pytest -n 2`); every process has clusters of its own.

The tests of a module that share what it starts are kept in one process, and so are those that have a sharded cluster
as their source, and those that have one as their destination alone: it takes servers to have them in each process. All
others go wherever there is room. This is what `--dist loadgroup` is for; but pytest-xdist 3.8 does not learn of the
groups from pytest 9.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from zlib import crc32

from xdist.scheduler import LoadScopeScheduling

_ROOT = Path(__file__).parents[2]
_SHARED = 'scope="module"'
# Names of topologies, as `across` of tests/support/pair.py has them.
_SHARDED = {"TO_SHARDED": "to sharded", "FROM_SHARDED": "from sharded", "SHARDED": "from sharded"}
_BEHAVIOURS = "tests/integration/test_behaviours.py"


class Spreading(LoadScopeScheduling):
    """The largest groups first, so that only single tests are left at the end."""

    def _split_scope(self, nodeid: str) -> str:
        module, _, test = nodeid.partition("::")
        if module == _BEHAVIOURS:
            # [behaviour-round]: all behaviours of a round share its sync.
            return module + test.partition("-")[2]
        for parameter in test.rpartition("[")[2].rstrip("]").split("-"):
            if parameter in _SHARDED:
                # Two groups of each kind: one alone would last longer than all the others.
                return f"{_SHARDED[parameter]} {crc32(module.encode()) % 2}"
        return module if _shares(module) else nodeid


@cache
def _shares(module: str) -> bool:
    return _SHARED in (_ROOT / module).read_text()
