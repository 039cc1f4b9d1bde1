"""The exception class for errors of the sandbox.

It is in a separate module, so that every module of the sandbox can import it without a cycle.
"""


class SandboxError(Exception):
    """Raised if a local cluster or the demo cannot be started or used; the message says what to do."""
