"""The only exception of the sandbox.

It has a module of its own so that every module of the package can raise it; it imports none of them.
"""


class SandboxError(Exception):
    """Raised if a local cluster cannot be started or used; the message says what to do."""
