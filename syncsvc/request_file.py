"""Reads the body of a request from a YAML or JSON file. Refuses values that JSON cannot represent.

The fields are validated elsewhere, by the schemas of the requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

# The body of a start with default options.
DEFAULT_START = {"source": "cluster0", "destination": "cluster1"}


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses a field that is given twice. Other loaders silently use the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        for name in names:
            if names.count(name) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the field {name} is given twice", node.start_mark
                )
        return super().construct_mapping(node, deep)


def read_request(file: Path) -> dict[str, Any]:
    """Return the fields in a YAML or JSON file. Raises ValueError, which names the wrong line or field."""
    try:
        body = _parsed(file)
        wrong = "; ".join(_not_json(body, ""))
    except RecursionError as error:
        raise ValueError(f"{file} is nested too deeply, or refers to itself.") from error
    if not isinstance(body, dict):
        raise ValueError(f"{file} must hold fields, such as source: cluster0.")
    if wrong:
        raise ValueError(f"{file}: {wrong}.")
    return body


def _parsed(file: Path) -> Any:
    try:
        return yaml.load(file.read_text(), _Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read: {error}.") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{file} is neither YAML nor JSON: {error}") from error


def _not_json(value: Any, path: str) -> Iterator[str]:
    """Yield a message for each field in `value` whose name or value JSON cannot represent, such as a date.

    `path` is the path of `value` in the file; empty for the whole file.
    """
    if isinstance(value, dict):
        for name, each in value.items():
            if isinstance(name, str):
                yield from _not_json(each, f"{path}.{name}" if path else name)
            else:
                where = f"{path}: " if path else ""
                yield f'{where}the name of a field must be a string: write "{name}" in quotes'
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _not_json(each, f"{path}[{number}]")
    elif not isinstance(value, str | bool | int | float | None) or (
        isinstance(value, float) and not isfinite(value)
    ):
        yield f'{path}: write the {type(value).__name__} "{value}" in quotes'
