"""The entry point of the single-file archive: runs the syncsvc program that the first command-line argument names."""

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, distribution


def _programs() -> dict[str, EntryPoint]:
    found = distribution("syncsvc").entry_points.select(group="console_scripts")
    return {each.name: each for each in found}


def main() -> int | None:
    programs = _programs()
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in programs:
        print(f"usage: ARCHIVE {{{','.join(sorted(programs))}}} [OPTION]...", file=sys.stderr)
        return 2
    # The program sees its own name and arguments.
    sys.argv[:2] = [name]
    run: Callable[[], int | None] = programs[name].load()
    return run()


if __name__ == "__main__":
    sys.exit(main())
