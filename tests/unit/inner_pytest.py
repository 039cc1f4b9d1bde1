"""Runs pytest in a separate process, to test our plugins of pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_pytest(
    path: Path | str, *options: str, rootdir: Path, configuration: str = "/dev/null"
) -> subprocess.CompletedProcess[str]:
    """Run the tests at `path`. Only pytest's own plugins are loaded, and those that `options` name with -p.

    Other installed plugins would take most of the time. The developer's own options are ignored, because they may
    change the output.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    command = [sys.executable, "-m", "pytest", "-c", configuration, "--rootdir", str(rootdir)]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *options, str(path)],
        cwd=ROOT,
        env={**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
