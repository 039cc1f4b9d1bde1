"""Prints pip constraints for the lowest allowed version of each requirement: `python -m tests.support.lowest`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

SETUP = Path(__file__).parents[2] / "setup.cfg"


def lowest(setup: Path = SETUP) -> Iterator[str]:
    """Yield `name==version` for every requirement `name >= version` of the project and its extra `test`."""
    config = ConfigParser()
    config.read(setup)
    requirements = config["options"]["install_requires"] + config["options.extras_require"]["test"]
    for name, version in re.findall(r"^([\w.-]+) *>= *([\w.]+)$", requirements, re.M):
        yield f"{name}=={version}"


if __name__ == "__main__":
    print("\n".join(lowest()))
