"""Process options as one table, from which flags, YAML keys, environment variables, help and documentation come."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TextIO

import configargparse
import yaml

from verifier.runtime.logs import redact


@dataclass(frozen=True)
class Option:
    """One process option; `name` is its flag without the dashes and its YAML key."""

    name: str
    meaning: str
    parse: Callable[[str], Any] = str
    default: Any = None
    required: bool = False
    choices: tuple[Any, ...] | None = None
    value: str = "VALUE"

    def variable(self, prefix: str) -> str:
        """The environment variable: bindAddress is PREFIX_BIND_ADDRESS."""
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.name)
        return f"{prefix}_{words}".upper()


class _YamlFile(configargparse.YAMLConfigFileParser):  # type: ignore[misc] # it comes without types
    """Refuses what would otherwise become the text that Python has for it."""

    def parse(self, stream: TextIO) -> dict[str, str]:
        try:
            # Every value as the text that it is: 010 and no are names as good as any.
            values = yaml.load(stream, yaml.BaseLoader)
            _check_mapping(values)
        except (yaml.YAMLError, ValueError) as error:
            text = f"the config file {stream.name} cannot be used: {error}"
            raise configargparse.ConfigFileParserException(text) from error
        return {name: value for name, value in values.items() if value not in ("", "null", "~")}


def _check_mapping(values: Any) -> None:
    if not isinstance(values, dict):
        raise ValueError("it is not a mapping of options to values")
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ValueError(f"{name!r} is not the name of an option with one value")


class _Parser(configargparse.ArgumentParser):  # type: ignore[misc] # it comes without types
    """Values of the configuration file and the environment pass through here too, hence the redaction."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {redact(message)}. See {self.prog} --help.", file=sys.stderr)
        raise SystemExit(2)


def parse(
    program: str,
    version: str,
    description: str,
    table: Sequence[Option],
    prefix: str,
    arguments: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The value of every option by name: flag, else environment variable, else configuration file, else default.

    Exits with status 2 and a message on standard error when an option is unknown, missing or has a bad value.
    """
    parser = _Parser(
        prog=program,
        description=description,
        allow_abbrev=False,
        config_file_parser_class=_YamlFile,
        add_env_var_help=True,
    )
    parser.add_argument("--version", "-v", action="version", version=f"{program} {version}")
    parser.add_argument(
        "--config",
        is_config_file=True,
        metavar="FILE",
        help="YAML file with the same names as keys",
    )
    for option in table:
        parser.add_argument(
            f"--{option.name}",
            env_var=option.variable(prefix),
            type=option.parse,
            default=option.default,
            required=option.required,
            choices=option.choices,
            metavar=option.value,
            help=_help(option),
        )
    values = vars(parser.parse_args(sys.argv[1:] if arguments is None else list(arguments)))
    return {option.name: values[option.name] for option in table}


def _help(option: Option) -> str:
    default = "" if option.default is None else f" (default: {option.default})"
    return f"{option.meaning}{default}"


def as_rst(table: Sequence[Option], prefix: str) -> str:
    """The table as the list that the documentation shows."""
    rows = [
        f"``--{option.name} {option.value}``, ``{option.variable(prefix)}``\n    {_help(option)}."
        for option in table
    ]
    return "\n".join(rows) + "\n"
