"""Distributes tests over several processes (`pytest -n 2`), each with its own clusters.

The tests of a module with module-scoped fixtures stay in one process. The tests of a module with a sharded source also
stay together, and so do those with only a sharded destination, because another process might have to start the servers
first. All other tests run in any process. `--dist loadgroup` is meant for this, but pytest-xdist 3.8 does not get the
groups from pytest 9.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

_SHARED = 'scope="module"'
# The names of topologies in `across` (tests/support/pair.py).
_SHARDED = {"TO_SHARDED": "to sharded", "FROM_SHARDED": "from sharded", "SHARDED": "from sharded"}
_BEHAVIOURS = "tests/integration/test_behaviours.py"


class Spreading(LoadScopeScheduling):
    """A scheduler that hands out the largest groups of tests first, so that single tests are left for the end."""

    def _split_scope(self, nodeid: str) -> str:
        module, _, test = nodeid.partition("::")
        if module == _BEHAVIOURS:
            # [behaviour-round]: all behaviours of a round share its sync.
            return module + test.partition("-")[2]
        for parameter in test.rpartition("[")[2].rstrip("]").split("-"):
            if parameter in _SHARDED:
                return f"{module} {_SHARDED[parameter]}"
        return module if _shares(self.config.rootpath / module) else nodeid


@cache
def _shares(module: Path) -> bool:
    return _SHARED in module.read_text()
