"""Reads process options from a table, from which the help text and the documentation are also generated."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from types import MappingProxyType
from typing import Any, NoReturn, TextIO

import configargparse
import yaml

from verifier.runtime.logs import redact

_log = logging.getLogger(__name__)

# The end of the name of an environment variable that Kubernetes sets for each service.
_SERVICE_HOST = "_SERVICE_HOST"


class Form(Enum):
    """The form of an option's value: one text, a flag, a list, or JSON text.

    A flag has the value true or false; on the command line, a flag without a value is true. The elements of a list are
    separated by commas, or the option is repeated on the command line; the configuration file may also contain a YAML
    list. In the configuration file, JSON may be written as YAML, whose numbers and booleans are then read as strings.
    """

    TEXT = "text"
    FLAG = "flag"
    LIST = "list"
    JSON = "JSON"


@dataclass(frozen=True)
class Option:
    """One process option.

    `name` is its flag without the dashes and its YAML key; each alias is another flag and key. `meaning` is its help
    text, and `value` the placeholder for its value in the help text. `parse` converts the text of a value, or of one
    element of a list, and raises ArgumentTypeError if it is invalid.
    """

    name: str
    meaning: str
    parse: Callable[[str], Any] = str
    default: Any = None
    required: bool = False
    choices: tuple[Any, ...] | None = None
    value: str = "VALUE"
    form: Form = Form.TEXT
    aliases: tuple[str, ...] = ()

    @property
    def flags(self) -> list[str]:
        return [f"--{name}" for name in (self.name, *self.aliases)]

    def variable(self, prefix: str) -> str:
        """Return the name of the environment variable, such as PREFIX_BIND_ADDRESS for bindAddress."""
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", self.name)
        return f"{prefix}_{words}".upper()

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of `add_argument`, except for the help text and the environment variable."""
        if self.form is Form.FLAG:
            return {
                "nargs": "?",
                "const": True,
                "default": False,
                "type": _truth,
                "metavar": "true|false",
            }
        known = {"required": self.required, "metavar": self.value}
        if self.form is Form.LIST:
            return {**known, "action": "extend", "type": self._parse_list, "default": []}
        return {**known, "type": self.parse, "default": self.default, "choices": self.choices}

    def _parse_list(self, text: str) -> list[Any]:
        return [self.parse(part.strip()) for part in text.split(",")]

    def of_file(self, value: Any) -> str | list[str]:
        """Return a value of a configuration file, read as YAML without types, in the form that argparse accepts.

        Raises ArgumentTypeError if the option does not accept the value.
        """
        given: str | list[str] = value
        if self.form is Form.JSON and not isinstance(value, str):
            given = json.dumps(value)
        if self.form is Form.LIST and isinstance(given, list) and {*map(type, given)} <= {str}:
            for each in given:
                self._parse_list(each)
        elif isinstance(given, str):
            self._check(given)
        else:
            raise ArgumentTypeError(
                "give one value, or a list of single values if the option accepts several"
            )
        return given

    def _check(self, text: str) -> None:
        if self.form is Form.LIST:
            self._parse_list(text)
            return
        parsed = _truth(text) if self.form is Form.FLAG else self.parse(text)
        if self.choices is not None and parsed not in self.choices:
            raise ArgumentTypeError(f"{text!r} is not one of {', '.join(map(str, self.choices))}")


def _truth(text: str) -> bool:
    """Return the value of a flag. Raises ArgumentTypeError for a text that is neither true nor false."""
    if text.lower() in ("true", "yes", "on", "1"):
        return True
    if text.lower() in ("false", "no", "off", "0"):
        return False
    raise ArgumentTypeError(f"{text!r} is neither true nor false")


CONFIG = Option(
    "config",
    "YAML configuration file, whose keys are the names of the options",
    value="FILE",
    aliases=("configFile",),
)


def number(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` to `most`. The parser raises ArgumentTypeError for other texts."""

    def parse(text: str) -> int:
        if not re.fullmatch("-?[0-9]{1,9}", text) or not least <= int(text) <= most:
            raise ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return parse


def _unquoted(mark: yaml.Mark | None) -> str:
    """Return the error text for a value at `mark` that begins with a special character, without the value."""
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    return f"{place}put quotes around a value that begins with *, & or !"


class _Texts(yaml.BaseLoader):
    """A loader that reads every value as text (`010` and `no` can be names), and refuses a key that occurs twice.

    It also refuses YAML's anchors, aliases and tags: in a configuration file, a value that begins with one of their
    characters is probably a secret without quotes, of which YAML would silently drop a part.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "anchor", None) or getattr(event, "tag", None):
            raise ValueError(_unquoted(event.start_mark))
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [self.construct_object(key, deep) for key, _ in node.value]
        twice = [str(each) for each in names if names.count(each) > 1]
        if twice:
            raise ValueError(f"the key {twice[0]} occurs more than once")
        return super().construct_mapping(node, deep)


class _YamlFile(configargparse.YAMLConfigFileParser):  # type: ignore[misc] # it comes without types
    """A parser of YAML files that reports all unknown keys and refused values at once."""

    def __init__(self, table: Sequence[Option], advice: Mapping[str, str]) -> None:
        super().__init__()
        self._options = {flag.removeprefix("--"): each for each in table for flag in each.flags}
        self._advice = advice

    def get_syntax_description(self) -> str:
        """Return the sentence about the configuration file in the help text."""
        return "The file is YAML: the names of the options, without the dashes, are its keys."

    def parse(self, stream: TextIO) -> dict[str, Any]:
        try:
            values = yaml.load(stream, _Texts)
            if values in (None, ""):
                values = {}  # the file is empty, or contains only comments
            if not isinstance(values, dict):
                raise ValueError("the content is not a mapping from options to values")
            given = {name: each for name, each in values.items() if each not in _EMPTY}
            unknown = [str(name) for name in values if name not in self._options]
            problems = [*self._problems(given), *self._named_twice(values)]
            if unknown:
                names = _with_hints(unknown, self._options, self._advice)
                problems.insert(0, f"unknown options: {names}")
            if problems:
                raise ValueError("; ".join(problems))
        except (yaml.YAMLError, ValueError) as error:
            reason = str(error)
            if isinstance(error, yaml.MarkedYAMLError) and "tag" in str(error.problem):
                # The text quotes the tag, which may be the beginning of a password.
                reason = _unquoted(error.problem_mark)
            text = f"the config file {stream.name} cannot be used: {reason}"
            raise configargparse.ConfigFileParserException(text) from error
        return {name: self._options[name].of_file(value) for name, value in given.items()}

    def _named_twice(self, given: Iterable[str]) -> Iterable[str]:
        """Yield a problem for each option that the file gives by more than one of its names."""
        names: dict[str, list[str]] = {}
        for each in given:
            if each in self._options:
                names.setdefault(self._options[each].name, []).append(each)
        for several in names.values():
            if len(several) > 1:
                yield f"{' and '.join(several)} are the same option: remove all but one"

    def _problems(self, given: Mapping[str, Any]) -> Iterable[str]:
        """Yield the reason for each value that its option does not accept."""
        for name, value in given.items():
            try:
                if name in self._options:
                    self._options[name].of_file(value)
            except (ArgumentTypeError, ValueError) as error:
                yield f"{name}: {error}"


# The texts of YAML values that stand for no value.
_EMPTY = ("", "null", "~")


def _with_hints(names: Iterable[str], known: Collection[str], advice: Mapping[str, str]) -> str:
    """Return a text that lists unknown names of options, each with its advice or, without one, the most similar name.

    `known` are the names of all options.
    """

    def described(name: str) -> str:
        similar = get_close_matches(name, known, 1)
        hint = advice.get(name) or (f"did you mean {similar[0]}?" if similar else "")
        return f"{name} ({hint})" if hint else name

    return ", ".join(map(described, names))


class _Parser(configargparse.ArgumentParser):  # type: ignore[misc] # it comes without types
    """A parser that redacts its error messages, which may quote values of options."""

    def error(self, message: str) -> NoReturn:
        refuse(self.prog, message)


def refuse(program: str, message: str) -> NoReturn:
    """Print a message to standard error, and exit with status 2, because the options are invalid."""
    print(f"{program}: {redact(message.rstrip('.'))}. See {program} --help.", file=sys.stderr)
    raise SystemExit(2)


def parse(
    program: str,
    version: str,
    description: str,
    table: Sequence[Option],
    prefix: str,
    arguments: Sequence[str] | None = None,
    advice: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the values of all options by name, from flags, environment, configuration file and defaults.

    If several of these sources give a value, the one that is named first takes precedence. `prefix` begins the names of
    the environment variables. `arguments` are the flags and their values; None means those of the command line.
    `advice` maps names of unsupported options to what to use instead. If an option is unknown, missing or has an
    invalid value, or the configuration file cannot be used, the process exits with status 2 and a message on standard
    error.
    """
    parser = _Parser(
        prog=program,
        description=description,
        allow_abbrev=False,
        config_file_parser_class=_YamlFile(table, advice),
        add_env_var_help=True,
    )
    parser.add_argument("--version", "-v", action="version", version=f"{program} {version}")
    parser.add_argument(
        *CONFIG.flags, is_config_file=True, metavar=CONFIG.value, help=CONFIG.meaning
    )
    for option in table:
        parser.add_argument(
            *option.flags,
            env_var=option.variable(prefix),
            help=_help(option),
            **option.arguments(),
        )
    # An empty variable counts as not set, as in files of systemd and Compose that list all variables.
    variables = {name: value for name, value in os.environ.items() if value}
    given = sys.argv[1:] if arguments is None else list(arguments)
    known, unknown = parser.parse_known_args(given, env_vars=variables)
    if unknown:
        parser.error(f"unknown options: {_described(unknown, table, advice)}")
    values = vars(known)
    return {option.name: values[option.name] for option in table}


def _described(arguments: Sequence[str], table: Sequence[Option], advice: Mapping[str, str]) -> str:
    """Return a text about the unknown flags in these arguments, without their values, which may be secret."""
    known = [flag for option in (*table, CONFIG) for flag in option.flags]
    flags = [
        each.partition("=")[0]
        for each in arguments
        if each.startswith("--") or (each.startswith("-") and len(each) == 2)
    ]
    hints = {f"--{name}": hint for name, hint in advice.items()}
    return (
        _with_hints(flags, known, hints)
        or "an argument that belongs to no option, and is not shown because it may be secret"
    )


def warn_of_unknown_variables(
    table: Sequence[Option], prefix: str, others: tuple[str, ...] = ()
) -> None:
    """Log a warning if environment variables of this process look like options, but belong to none.

    For the parameters, see `unknown_variables`.
    """
    if unknown := unknown_variables(table, prefix, os.environ, others):
        # Log only the names: the values may be secret.
        _log.warning(
            "Some environment variables have no effect, because no option reads them. Check their names: --help lists "
            "the variables of all options.",
            extra={"variables": unknown},
        )


def unknown_variables(
    table: Sequence[Option], prefix: str, given: Collection[str], others: tuple[str, ...]
) -> list[str]:
    """Return the names in `given` that begin with `prefix` and an underscore, but belong to no option; sorted.

    Leave out names that begin with an element of `others`, which other programs read, and the variables that Kubernetes
    sets for services.
    """
    services = [name.removesuffix(_SERVICE_HOST) for name in given if name.endswith(_SERVICE_HOST)]
    links = {f"{each}_PORT" for each in services}
    others += tuple(f"{each}_{kind}_" for each in services for kind in ("SERVICE", "PORT"))
    known = {option.variable(prefix) for option in table} | links
    return sorted(
        name
        for name in given
        if name.startswith(f"{prefix}_") and name not in known and not name.startswith(others)
    )


def _help(option: Option) -> str:
    default = "" if option.default is None else f" (default: {option.default})"
    return f"{option.meaning}{default}"


def as_rst(table: Sequence[Option], prefix: str) -> str:
    """Return the table of options as a reStructuredText list for the documentation.

    `prefix` begins the names of the environment variables.
    """
    rows = [
        f"{_usage(option)}, ``{option.variable(prefix)}``\n    {_help(option)}." for option in table
    ]
    return "\n".join([*rows, f"{_usage(CONFIG)}\n    {_help(CONFIG)}."]) + "\n"


def _usage(option: Option) -> str:
    value = "" if option.form is Form.FLAG else f" {option.value}"
    return ", ".join(f"``{flag}{value}``" for flag in option.flags)
