"""`python -m syncsvc.sandbox`: a source and a destination to try the product on.

It starts and stops the two clusters, and must not start the product itself.
"""

import argparse
import shlex
import signal
import sys
import threading

from syncsvc.sandbox.errors import SandboxError
from syncsvc.sandbox.replica_set import ReplicaSet

_SESSION = """\
cluster0: {cluster0}
cluster1: {cluster1}

Start the daemon in another terminal:

  syncsvc --cluster0 {quoted0} --cluster1 {quoted1}

and in a third one sync from cluster0 to cluster1:

  curl localhost:27182/api/v1/start -XPOST \\
    --data '{{"source": "cluster0", "destination": "cluster1"}}'
  curl localhost:27182/api/v1/progress
  curl localhost:27182/api/v1/commit -XPOST --data '{{}}'

Both clusters and their data are gone when you press Ctrl-C here.
"""


def main() -> int:
    options = _parser().parse_args()
    # Both unwind the stack, so that whatever is started by then is stopped; set explicitly
    # because a shell starts background jobs with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _run(options.members, options.access_control)
    except KeyboardInterrupt:
        return 0
    except SandboxError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m syncsvc.sandbox",
        description="Start two throw-away replica sets on loopback, until Ctrl-C.",
    )
    parser.add_argument(
        "--members", type=int, choices=(1, 3), default=1, help="members of each replica set"
    )
    parser.add_argument(
        "--accessControl",
        dest="access_control",
        action="store_true",
        help="require authentication; the printed URIs have the credentials",
    )
    return parser


def _run(members: int, access_control: bool) -> None:
    with (
        ReplicaSet(name="source", members=members, access_control=access_control) as source,
        ReplicaSet(name="destination", members=members, access_control=access_control) as dest,
    ):
        print(_session(source.uri, dest.uri), end="", flush=True)
        threading.Event().wait()


def _session(cluster0: str, cluster1: str) -> str:
    return _SESSION.format(
        cluster0=cluster0,
        cluster1=cluster1,
        quoted0=shlex.quote(cluster0),
        quoted1=shlex.quote(cluster1),
    )


if __name__ == "__main__":
    sys.exit(main())
