"""The only exception class of the sandbox.

It is in a separate module, so that every module of the package can import it without a cycle.
"""


class SandboxError(Exception):
    """Raised if a local cluster cannot be started or used; the message says what to do."""
