"""Reads the body of a request from a JSON or YAML 1.2 file. Refuses values that JSON cannot represent.

The fields are validated elsewhere, by the schemas of the requests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

# The body of a start with default options.
DEFAULT_START = {"source": "cluster0", "destination": "cluster1"}


# The unquoted scalars that are not strings in the core schema of YAML 1.2, except null, which PyYAML reads correctly.
# For each tag, the possible first characters and a regular expression. In YAML 1.1, which PyYAML implements, 1e3 is a
# string, NO is false, 12:30 is 750, 010 is 8.
_CORE = {
    "tag:yaml.org,2002:bool": ("tTfF", r"true|True|TRUE|false|False|FALSE"),
    "tag:yaml.org,2002:int": ("-+0123456789", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    "tag:yaml.org,2002:float": (
        "-+.0123456789",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    ),
}


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses a field that is given twice. PyYAML's loaders silently use the last value.

    Its types are those of YAML 1.2, except that it recognizes dates, `<<` and `=`, which `read_request` refuses.
    """

    yaml_implicit_resolvers = {
        first: [each for each in resolvers if each[0] not in _CORE]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (AttributeError, LookupError, ValueError) as error:
            # PyYAML's error, for example for `!!bool maybe`, does not name the line.
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                None, None, f"the value is not a valid {kind}", node.start_mark
            ) from error

    def construct_integer(self, node: yaml.ScalarNode) -> int:
        text = self.construct_scalar(node)
        return int(text, 0 if text[:2] in ("0o", "0x") else 10)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        pairs = node.value if isinstance(node, yaml.MappingNode) else []  # `!!map` may mark a list
        try:
            _refuse_repeated([self.construct_object(key, deep=True) for key, _ in pairs])
        except ValueError as error:
            raise yaml.constructor.ConstructorError(
                None, None, str(error), node.start_mark
            ) from error
        return super().construct_mapping(node, deep)


for _tag, (_first, _texts) in _CORE.items():
    _Loader.add_implicit_resolver(_tag, re.compile(f"({_texts})$"), [*_first])
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_integer)


def read_request(file: Path) -> dict[str, Any]:
    """Return the fields in a YAML or JSON file.

    Raises ValueError if the file cannot be read, is neither YAML nor JSON, gives a field twice, or does not hold fields
    that JSON can represent. The text of the error names the file.
    """
    try:
        body = _parsed(file)
        wrong = "; ".join(_not_json(body, ""))
    except RecursionError as error:
        raise ValueError(f"{file} is nested too deeply, or refers to itself.") from error
    if not isinstance(body, dict):
        raise ValueError(f"{file} must contain fields, each with a name and a value.")
    if wrong:
        raise ValueError(f"{file}: {wrong}.")
    return body


def _parsed(file: Path) -> Any:
    try:
        return _value(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read: {error}.") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{file} cannot be read as YAML or JSON: {error}") from error


def _value(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError:
        return yaml.load(text, _Loader)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _refuse_repeated([name for name, _ in pairs])
    return dict(pairs)


def _refuse_repeated(names: list[Any]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the field {name} is given twice")


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
                yield f"{where}the name of a field must be a string, not {name}: write the name in quotes"
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _not_json(each, f"{path}[{number}]")
    elif not isinstance(value, str | bool | int | float | None) or (
        isinstance(value, float) and not isfinite(value)
    ):
        yield (
            f"{path}: JSON cannot represent the {type(value).__name__} {value}; if it is a string, write it in quotes"
        )
