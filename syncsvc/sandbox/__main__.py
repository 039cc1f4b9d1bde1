"""`python -m syncsvc.sandbox`: runs a source and a destination cluster for trying syncsvc.

The command starts and stops the two clusters, and does not start syncsvc itself.
"""

import argparse
import shlex
import signal
import sys
import tempfile
import threading

from syncsvc.sandbox.demo import flights
from syncsvc.sandbox.demo.extra import require
from syncsvc.sandbox.errors import SandboxError
from syncsvc.sandbox.replica_set import ReplicaSet

_PORT = 27182
_SESSION = """\
cluster0: {cluster0}
cluster1: {cluster1}

{contents}

1. In another terminal, start the daemon:

{python} -m syncsvc --cluster0 {quoted0} --cluster1 {quoted1}{option}

2. In a third terminal, start a sync from cluster0 to cluster1:

{python} -m syncsvc.ctl{url} start

3. Follow the sync until a commit is possible:

{python} -m syncsvc.ctl{url} watch --until canCommit

4. Commit. When the sync is COMMITTED, cluster1 has the same data as cluster0:

{python} -m syncsvc.ctl{url} commit --wait

Ctrl-C in this terminal ends both clusters and removes their data.
"""


def main() -> int:
    options = _parser().parse_args()
    # Look up the temporary folder now: the first lookup writes a test file, which an interrupt would leave behind.
    tempfile.gettempdir()
    # Both signals unwind the stack, so that every server started so far is stopped. SIGINT is set explicitly because a
    # shell starts background jobs with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _run(options)
    except KeyboardInterrupt:
        return 0
    except SandboxError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m syncsvc.sandbox",
        description="Run two throw-away replica sets on loopback until Ctrl-C.",
    )
    parser.add_argument(
        "--members",
        type=int,
        choices=(1, 3),
        default=1,
        help="number of members of each replica set",
    )
    parser.add_argument(
        "--accessControl",
        dest="access_control",
        action="store_true",
        help="require authentication; the printed URIs contain the credentials",
    )
    parser.add_argument(
        "--data",
        action="store_true",
        help="fill cluster0 with the flights of the demo, about 370,000 documents (needs the Python extra `demo`)",
    )
    parser.add_argument(
        "--port", type=int, default=_PORT, help="port of the daemon's API, for the printed commands"
    )
    return parser


def _run(options: argparse.Namespace) -> None:
    if options.data:
        require(flights.PACKAGE)
    sizes = {"members": options.members, "access_control": options.access_control}
    with ReplicaSet(name="source", **sizes) as source, ReplicaSet(
        name="destination", **sizes
    ) as to:
        contents = (
            _fill(source) if options.data else "Both clusters are empty; --data loads example data."
        )
        print(_session(source.uri, to.uri, contents, options.port), end="", flush=True)
        threading.Event().wait()


def _fill(source: ReplicaSet) -> str:
    """Load example data (flights) into the source, and return a sentence about the contents of both clusters."""
    print("Loading the flights that left New York in 2013 ...", flush=True)
    with source.client() as client:
        number = flights.load_flights(client)
    return f"cluster0 holds {number:,} documents in the database {flights.DATABASE}; cluster1 is empty."


def _session(cluster0: str, cluster1: str, contents: str, port: int) -> str:
    """Return the text to print once both clusters run: their connection strings, and commands to paste."""
    return _SESSION.format(
        cluster0=cluster0,
        cluster1=cluster1,
        contents=contents,
        # The command `syncsvc` may not be on the PATH.
        python=shlex.quote(sys.executable),
        quoted0=shlex.quote(cluster0),
        quoted1=shlex.quote(cluster1),
        option="" if port == _PORT else f" --port {port}",
        url="" if port == _PORT else f" --url http://localhost:{port}",
    )


if __name__ == "__main__":
    sys.exit(main())
