"""Checks that the packages of the extra `demo` are installed."""

import shlex
import sys
from importlib.util import find_spec

from syncsvc.sandbox.errors import SandboxError


def require(*names: str) -> None:
    """Raise SandboxError if one of these packages of the extra `demo` is missing.

    The error names the command that installs them.
    """
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        command = shlex.join([sys.executable, "-m", "pip", "install", "syncsvc[demo]"])
        raise SandboxError(
            f"These Python packages are not installed: {', '.join(missing)}. These packages belong to the extra "
            f"`demo`. Run `make demo` in a clone of the project, or install them with: {command}"
        )
