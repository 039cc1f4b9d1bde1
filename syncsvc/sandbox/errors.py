"""The one exception of the sandbox.

It lives alone so that every module of the package can raise it; it must not know any of them.
"""


class SandboxError(Exception):
    """A local cluster could not be started or used; the message names the remedy."""
