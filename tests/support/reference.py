"""The parts of the documentation that are generated from the tables in the code.

A page in docs contains generated text between two comments::

    .. generated: NAME

    .. end of generated text

`python -m tests.support.reference` writes all generated text, the OpenAPI documents of both services, and the alert
rules for Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

from tabulate import tabulate

import syncsvc.errors
import syncsvc.reports.metrics
import syncsvc.settings
import verifier.errors
import verifier.metrics
import verifier.settings
from syncsvc.resuming import RESUMPTIONS, Resumption
from syncsvc.state import State, Trigger, next_state
from syncsvc.tuning import LOAD_LEVELS, THREAD_FACTORS, LoadLevel, Tuning
from tests.bench.benchmarks import BENCHMARKS
from tests.support import (
    benchmarks,
    commands,
    custom_roles,
    descriptions,
    evidence,
    log_lines,
    manifests,
    roles,
)
from tests.unit.verifier.values import EXAMPLE, EXAMPLE_DEFINITIONS, EXAMPLE_DOCUMENTS
from verifier.cluster import extended
from verifier.cluster.features import FEATURES, Feature
from verifier.compare.mismatch_lines import line
from verifier.compare.tuning import CheckTuning
from verifier.reports.lines import report
from verifier.runtime import errors, metrics, options, tuning
from verifier.runtime.errors import OperationError
from verifier.runtime.httpd import REQUEST_THREADS
from verifier.runtime.openapi import Operation
from verifier.runtime.schemas import EmptySchema

DOCS = Path(__file__).parents[2] / "docs"

_REGION = re.compile(
    r"^(\.\. generated: (?P<name>\S+)\n\n)(?:.*?\n)??(\.\. end of generated text\n)", re.M | re.S
)
# The roles and topologies that the table of the server features does not mention.
_ANYWHERE = ("any", "both")
# The errors that any request can fail with.
_COMMON = tuple(
    kind.name for kind in Operation("post", "", "", None, body=EmptySchema()).all_errors
)
# Modules that only the stand-alone verifier runs.
_VERIFIER_ONLY = [f"verifier/{name}.py" for name in ("announce", "api", "cli", "service")]
# Bodies that are described by hand on another page.
_ELSEWHERE = {"Start": "The body contains the :ref:`options of a start <start-options>`."}


def filled(text: str) -> str:
    """Return the text of a page, with each generated part replaced by its newest version."""

    def fill(found: re.Match[str]) -> str:
        return f"{found[1]}{GENERATED[found['name']]().rstrip()}\n\n{found[3]}"

    return _REGION.sub(fill, text)


def names(text: str) -> list[str]:
    """Return the names of the generated parts in the text of a page."""
    return [found["name"] for found in _REGION.finditer(text)]


def pages() -> list[Path]:
    """Return the pages of the documentation, sorted by path."""
    return sorted(DOCS.rglob("*.rst"))


def _literal(lines: Iterable[str]) -> str:
    return "::\n\n" + "".join(f"    {each}".rstrip() + "\n" for each in lines)


def _transitions() -> str:
    """Render the state transitions of a sync: one line for each trigger and the state to which it leads."""
    steps = [
        (trigger, following, state)
        for trigger in Trigger
        for state in State
        if (following := _following(state, trigger))
    ]
    grouped = groupby(steps, key=lambda step: step[:2])
    return _literal(
        f"{', '.join(state.value for *_, state in found)} --{trigger.value}--> {following.value}"
        for (trigger, following), found in grouped
    )


def _following(state: State, trigger: Trigger) -> State | None:
    with suppress(OperationError):
        return next_state(state, trigger)
    return None


def _resumptions() -> str:
    """Render the effect of a resume after each kind of error with which a sync can fail."""
    rows = (
        (_listed(kind.name for kind, each in RESUMPTIONS.items() if each is resumption), resumption)
        for resumption in Resumption
    )
    return "".join(f"{names}\n    {resumption.value}\n" for names, resumption in rows)


def _load_levels() -> str:
    rows = [
        (level, reach, load.readers, load.writers, load.lanes, load.comparers)
        for level, reach, load in _loads()
    ]
    heads = ("load level", "round-trip time", "readers", "writers", "lanes", "comparers")
    return tabulate(rows, heads, tablefmt="rst") + "\n"


def _loads() -> Iterator[tuple[int, str, LoadLevel]]:
    """Yield each load level with each range of round-trip times, and the numbers of threads for both."""
    for level, load in LOAD_LEVELS.items():
        for least in sorted(THREAD_FACTORS):
            reach = f"{1000 * least:.0f} ms or more" if least else "shorter"
            yield level, reach, load.over(least)


def _threads() -> str:
    """Render the number of threads of a sync between replica sets, by load level.

    The architecture page explains how the numbers are composed.
    """
    rows = [(level, reach, *_numbers_of_threads(load)) for level, reach, load in _loads()]
    heads = (
        "load level",
        "round-trip time",
        "collection copy",
        "change event application, with verification",
    )
    return tabulate(rows, heads, tablefmt="rst") + "\n"


def _numbers_of_threads(load: LoadLevel) -> tuple[int, int]:
    """Return the numbers of threads of the process during the copy, and while change events are applied."""
    process = 5 + REQUEST_THREADS
    sync = process + 4
    return sync + 1 + load.readers + load.writers, sync + 5 + load.lanes + 2 + 2 * load.comparers


def _connections() -> str:
    """Render the number of connections that a sync uses to one server, by load level.

    Each thread uses at most one at a time. The main thread, the warnings of long waits and most requests use none, and
    the driver uses two more to monitor the server. By default, the driver opens at most 100 others.
    """
    idle, monitoring, most = 2 + REQUEST_THREADS, 2, 100
    rows = [
        (level, reach, min(max(_numbers_of_threads(load)) - idle, most) + monitoring)
        for level, reach, load in _loads()
    ]
    heads = ("load level", "round-trip time", "connections to one server")
    return tabulate(rows, heads, tablefmt="rst") + "\n"


def _log_lines(*parts: str) -> str:
    """Render the log lines of packages and modules of the product, given by their paths in the repository."""
    paths = [DOCS.parent / each for each in parts]
    return log_lines.as_rst(
        module for path in paths for module in (path.rglob("*.py") if path.is_dir() else [path])
    )


def _metrics(module: ModuleType) -> str:
    """Render the metrics of a service, and of its webhook. `module` contains the tables of both."""
    return metrics.as_rst([*module.TABLE, *module.WEBHOOK_TABLE])


def _report() -> str:
    return _literal(report(EXAMPLE, EXAMPLE_DOCUMENTS, EXAMPLE_DEFINITIONS))


def _mismatch_lines() -> str:
    found = [*map(line, EXAMPLE_DOCUMENTS), *map(line, EXAMPLE_DEFINITIONS)]
    return _literal(map(extended.written, found))


def _api(service: str) -> str:
    every = f"Any request can be refused with {_listed(_COMMON)}.\n\n"
    text = every + "\n".join(_Api(descriptions.DESCRIPTIONS[service]).operations())
    return re.sub("\n{3,}", "\n\n", text)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"``{name}``" for name in names)


class _Api:
    """Renders the operations of an OpenAPI document as reStructuredText."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def operations(self) -> Iterator[str]:
        for path, methods in self._document["paths"].items():
            for method, operation in methods.items():
                title = f"``{method.upper()} {path}``"
                yield "\n".join([title, "~" * len(title), "", *self._operation(operation)])

    def _operation(self, operation: dict[str, Any]) -> Iterator[str]:
        yield f"{operation['summary']}\n"
        if parameters := operation.get("parameters"):
            yield "Parameters:\n"
            for each in parameters:
                schema = {**each["schema"], "description": each["description"]}
                yield from self._field(each["name"], schema, not each["required"])
            yield ""
        if body := operation.get("requestBody"):
            yield from self._body(self._schema(body))
        yield from self._answer(self._schema(operation["responses"]["200"]))
        if found := [name for name in self._errors(operation) if name not in _COMMON]:
            yield f"Errors: {_listed(found)}.\n"

    def _schema(self, message: dict[str, Any]) -> dict[str, Any]:
        # Use the first content type. Only the report has another one, HTML, which its parameters describe.
        content = next(iter(message["content"].values()))
        schema: dict[str, Any] = content["schema"]
        return schema

    def _body(self, schema: dict[str, Any]) -> Iterator[str]:
        name = schema.get("$ref", "").rpartition("/")[2]
        if name in _ELSEWHERE:
            yield f"{_ELSEWHERE[name]}\n"
        elif fields := list(self._fields(schema)):
            yield "Request body:\n"
            yield from [*fields, ""]
        else:
            yield "Request body: ``{}``, or none.\n"

    def _answer(self, schema: dict[str, Any]) -> Iterator[str]:
        if schema.get("type") == "array":
            yield "Answer: one JSON object per line, of these kinds:\n"
            for each in schema["items"]["anyOf"]:
                name = each["$ref"].rpartition("/")[2]
                yield f"``{name}``"
                yield from _indented([*self._fields(each), ""])
        elif schema.get("type") == "string":
            yield "Answer: text.\n"
        elif fields := list(self._fields(schema)):
            yield "Answer:\n"
            yield from [*fields, ""]

    def _fields(self, schema: dict[str, Any]) -> Iterator[str]:
        resolved = self._resolved(schema)
        required = resolved.get("required", ())
        for name, field in resolved.get("properties", {}).items():
            if name != "success":
                yield from self._field(name, field, name not in required)

    def _field(self, name: str, schema: dict[str, Any], optional: bool) -> Iterator[str]:
        notes = [self._kind(schema)]
        if "default" in schema:
            notes.append(f"default {_json(schema['default'])}")
        elif optional:
            notes.append("optional")
        yield f"``{name}`` ({', '.join(notes)})"
        inner = list(self._fields(self._inner(schema)))
        yield from _indented([schema["description"], *(["", *inner] if inner else []), ""])

    def _kind(self, schema: dict[str, Any]) -> str:
        resolved = self._resolved(schema)
        if "enum" in resolved:
            return " or ".join(map(_json, resolved["enum"]))
        if "anyOf" in resolved:
            return " or ".join(map(self._kind, resolved["anyOf"]))
        kind = resolved.get("type", "any value")
        if kind == "array":
            return f"array of {self._kind(resolved['items'])}"
        return kind if isinstance(kind, str) else " or ".join(kind)

    def _inner(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema whose fields the documentation shows below a field with this schema.

        This is the schema of the elements of an array, the first of several alternatives, or else `schema` itself.
        References are resolved.
        """
        resolved = self._resolved(schema)
        if "items" in resolved:
            return self._inner(resolved["items"])
        for each in resolved.get("anyOf", ()):
            return self._inner(each)
        return resolved

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        if "$ref" not in schema:
            return schema
        name = schema["$ref"].rpartition("/")[2]
        found: dict[str, Any] = self._document["components"]["schemas"][name]
        return found

    def _errors(self, operation: dict[str, Any]) -> Iterator[str]:
        for status, message in operation["responses"].items():
            if status != "200":
                _, error = self._schema(message)["allOf"]
                yield from error["properties"]["error"]["enum"]


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"    {each}" if each else each for each in lines)


def _json(value: Any) -> str:
    return f"``{extended.written(value)}``" if not isinstance(value, str) else f"``{value}``"


def _features() -> str:
    """Return the table of the server features. Features that differ only in their names share a row."""

    def rest(feature: Feature) -> tuple[str, ...]:
        where = [
            each.value for each in (feature.role, feature.shape) if each.value not in _ANYWHERE
        ]
        who = "sync, verifier" if feature.verifier else "sync"
        return (
            f"{feature.use} ({', '.join([who, *where])})",
            feature.first,
            feature.probe.value,
            feature.without,
        )

    rows = [
        [", ".join(f"``{each.name}``" for each in found), *same]
        for same, found in groupby(FEATURES, key=rest)
    ]
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [["Feature", "Needed for", "Since", "Probed by", "Without it"], *rows]:
        lines += [f"   {'*' if not at else ' '} - {cell}" for at, cell in enumerate(row)]
    return "\n".join(lines)


GENERATED: dict[str, Callable[[], str]] = {
    "syncsvc-api": lambda: _api("syncsvc"),
    "syncsvc-errors": lambda: errors.as_rst(syncsvc.errors.ALL),
    "syncsvc-metrics": lambda: _metrics(syncsvc.reports.metrics),
    "tuning": lambda: tuning.as_rst(Tuning()),
    "check-tuning": lambda: tuning.as_rst(CheckTuning()),
    "syncsvc-options": lambda: options.as_rst(syncsvc.settings.TABLE, syncsvc.settings.PREFIX),
    "verifier-api": lambda: _api("verifier"),
    "verifier-errors": lambda: errors.as_rst(verifier.errors.ALL),
    "verifier-metrics": lambda: _metrics(verifier.metrics),
    "verifier-options": lambda: options.as_rst(verifier.settings.TABLE, verifier.settings.PREFIX),
    "load-levels": _load_levels,
    "syncsvc-log-lines": lambda: _log_lines("syncsvc"),
    "verifier-log-lines": lambda: _log_lines(*_VERIFIER_ONLY),
    "log-lines-of-both": lambda: _log_lines(
        "verifier/cluster", "verifier/compare", "verifier/runtime"
    ),
    "mismatch-lines": _mismatch_lines,
    "report": _report,
    "resumptions": _resumptions,
    "roles": roles.as_rst,
    "server-features": _features,
    "states": _transitions,
    "syncctl-commands": commands.commands_as_rst,
    "syncctl-exits": commands.exits_as_rst,
    "syncctl-options": commands.options_as_rst,
    "connections": _connections,
    "threads": _threads,
    "custom-roles": custom_roles.of_sync_as_rst,
    "custom-roles-verifier": custom_roles.of_verifier_as_rst,
    "evidence-tests": evidence.tests,
    "evidence-faults": evidence.faults,
    "evidence-takeovers": evidence.takeovers,
    "evidence-limits": evidence.limits,
    "evidence-model": evidence.model,
    **{f"benchmark-{name}": partial(benchmarks.part, name) for name in BENCHMARKS},
}


def main() -> None:
    """Write the OpenAPI documents, the alert rules for Kubernetes, and the generated text of all pages."""
    manifests.RULES.write_text(manifests.rules())
    for service in descriptions.DESCRIPTIONS:
        descriptions.file_of(service).write_text(descriptions.text_of(service))
    for page in pages():
        page.write_text(filled(page.read_text()))


if __name__ == "__main__":
    main()
