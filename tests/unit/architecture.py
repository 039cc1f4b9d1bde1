"""The rules for the structure of the code. Each rule is a function that yields violations found in parsed modules."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGES = ("syncsvc", "verifier")

# The layers of the code, lowest first. A part may import itself and the lower layers of its own column. A module
# belongs to the part with the longest matching name. A package is one part, except for modules listed separately.
FOUNDATION = (
    {"verifier.runtime"},
    {"verifier.cluster"},
    {"verifier.compare"},
    {"verifier.page"},
)
VERIFIER = (
    *FOUNDATION,
    {"verifier"},
    {"verifier.errors", "verifier.schemas", "verifier.selection"},
    {
        *("verifier.answer_schemas", "verifier.answers", "verifier.metrics"),
        *("verifier.notices", "verifier.rules"),
    },
    {"verifier.overview"},
    {"verifier.overview_schemas", "verifier.reports"},
    {"verifier.settings", "verifier.openapi"},
    {"verifier.service", "verifier.api"},
    {"verifier.announce", "verifier.app"},
    {"verifier.cli"},
    {"verifier.__main__"},
)
SYNC = (
    *FOUNDATION,
    {"syncsvc"},
    {"syncsvc.request_file"},
    {
        *("syncsvc.errors", "syncsvc.limits", "syncsvc.metadata", "syncsvc.options"),
        *("syncsvc.source", "syncsvc.tuning"),
    },
    {"syncsvc.principals", "syncsvc.rules", "syncsvc.schemas", "syncsvc.state"},
    {"syncsvc.desired", "syncsvc.figures", "syncsvc.saved"},
    {"syncsvc.engine.run", "syncsvc.preflight", "syncsvc.resuming"},
    {"syncsvc.engine.definitions"},
    {"syncsvc.engine.documents"},
    {"syncsvc.engine.copying"},
    {"syncsvc.engine.events"},
    {"syncsvc.engine"},
    {"syncsvc.reports"},
    {"syncsvc.background", "syncsvc.gate", "syncsvc.queries", "syncsvc.running"},
    {"syncsvc.cluster_queries"},
    {"syncsvc.service"},
    {"syncsvc.api", "syncsvc.openapi", "syncsvc.reconciler", "syncsvc.standby"},
    {"syncsvc.health", "syncsvc.page"},
    {"syncsvc.app", "syncsvc.settings"},
    {"syncsvc.cli"},
    {"syncsvc.__main__"},
)
# The two packages of each pair must not import anything from each other, regardless of the layers.
APART = (("syncsvc.engine", "syncsvc.preflight"), ("syncsvc.engine", "syncsvc.reports"))


def within(name: str, *parts: str) -> bool:
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def directions(*columns: tuple[set[str], ...]) -> dict[str, set[str]]:
    """Return, for each part of the product, the parts that it may import. A part is a package or a single module.

    Each of the `columns` is a sequence of layers, from the lowest to the highest. A layer is a set of parts. A part may
    import itself, and all parts in lower layers of its column. The pairs in APART may never import each other.
    """
    allowed: dict[str, set[str]] = {}
    for column in columns:
        below: set[str] = set()
        for layer in column:
            allowed |= {part: below | {part} for part in layer}
            below |= layer
    for one, other in (*APART, *((other, one) for one, other in APART)):
        for part in filter(lambda part: within(part, one), allowed):
            allowed[part] = {each for each in allowed[part] if not within(each, other)}
    return allowed


SANDBOX = "syncsvc.sandbox"
# A client of the HTTP API, which imports only `request_file` of the services.
TOOL = "syncsvc.ctl"
DIRECTIONS = directions(VERIFIER, SYNC, ({SANDBOX},), ({"syncsvc.request_file"}, {TOOL}))
DRIVER = ("pymongo", "bson", "gridfs")

# Modules that must be pure; for a package, this means all of its modules.
PURE = {
    "syncsvc.ctl.advice",
    "syncsvc.ctl.facts",
    "syncsvc.ctl.limits",
    "syncsvc.ctl.rates",
    "syncsvc.ctl.text",
    "syncsvc.desired",
    "syncsvc.engine.definitions.naming",
    "syncsvc.engine.definitions.standin",
    "syncsvc.engine.documents.shardkey",
    "syncsvc.engine.documents.translate",
    "syncsvc.engine.events.event_share",
    "syncsvc.engine.events.modification",
    "syncsvc.engine.run.frontier",
    "syncsvc.figures.headroom",
    "syncsvc.figures.oplog_window",
    "syncsvc.figures.overload",
    "syncsvc.figures.spooling",
    "syncsvc.figures.throttling",
    "syncsvc.figures.trends",
    "syncsvc.limits",
    "syncsvc.options",
    "syncsvc.preflight.estimates",
    "syncsvc.preflight.findings",
    "syncsvc.preflight.privileges",
    "syncsvc.preflight.rules",
    "syncsvc.principals.comparison",
    "syncsvc.reports",
    "syncsvc.rules",
    "syncsvc.saved.journal",
    "syncsvc.saved.run",
    "syncsvc.state",
    "verifier.answers",
    "verifier.cluster.events",
    "verifier.cluster.extended",
    "verifier.cluster.features",
    "verifier.cluster.keys",
    "verifier.cluster.namespace",
    "verifier.cluster.privileges",
    "verifier.cluster.rawbson",
    "verifier.cluster.specification",
    "verifier.cluster.times",
    "verifier.compare.check_progress",
    "verifier.compare.definitions",
    "verifier.compare.documents",
    "verifier.compare.expiry",
    "verifier.compare.mismatch",
    "verifier.compare.record",
    "verifier.compare.rows",
    "verifier.compare.scope",
    "verifier.compare.task",
    "verifier.compare.verdict",
    "verifier.metrics",
    "verifier.page.report_page",
    "verifier.reports",
    "verifier.runtime.quantities",
    "verifier.runtime.strict_json",
    "verifier.selection",
}
IMPURE_IMPORTS = ("pymongo", "flask", "threading")
LOCK_HOLDERS = {"syncsvc.engine.run.frontier"}

THREAD_STARTERS = {"verifier.runtime.tasks"}
STARTS_THREADS = {
    "threading.Thread",
    "threading.Timer",
    "_thread.start_new_thread",
    "concurrent.futures.ThreadPoolExecutor",
    "concurrent.futures.thread.ThreadPoolExecutor",
    "multiprocessing.pool.ThreadPool",
}
MAY_PRINT = {"__main__", "cli", "options", "process", "demo"}
VAGUE_NAMES = {"util", "utils", "helper", "helpers", "common", "misc"}
BROAD_EXCEPTS_ALLOWED = {
    ("verifier.runtime.httpd", "_ended_by_error"),
    ("verifier.runtime.process", "run"),
    ("verifier.runtime.tasks", "_outermost"),
    ("verifier.runtime.tasks", "call_second"),
    ("syncsvc.reconciler", "_execute"),
    ("syncsvc.engine.after_commit", "_attempt"),
    ("syncsvc.engine.after_commit", "_save"),
    ("syncsvc.running.runner", "_run_sync"),
    ("syncsvc.running.pausing", "_has_spooled"),
    ("syncsvc.running.runner", "_run_reset"),
    ("verifier.service", "_run_check"),
}
LONGEST_FUNCTION = 50
# The names that extra fields of a log call must not have: those of the standard fields of a log record, and those that
# the lines of our log use. logging rejects only the former, and only when the line is logged, which may never happen in
# a test.
LOG_FIELDS_TAKEN = {*vars(logging.makeLogRecord({})), "message", "asctime"} | {
    *("time", "level", "thread", "trace", "serverID", "mongosyncID", "pid")
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One parsed module. `name` is its dotted name, and `package` is true for the `__init__` of a package."""

    name: str
    tree: ast.Module
    package: bool = False

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Return all nodes of the tree. Nearly every rule needs them, and the walk takes longer than a rule."""
        return tuple(ast.walk(self.tree))

    def at(self, node: ast.stmt | ast.expr | ast.excepthandler) -> str:
        return f"{self.name}:{node.lineno}"

    @cached_property
    def imports(self) -> list[tuple[str, ast.stmt]]:
        """Return every imported dotted name with its statement, including imports inside functions.

        For `from a import b`, return both a and a.b.
        """
        found: list[tuple[str, ast.stmt]] = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found.extend((each.name, node) for each in node.names)
            elif isinstance(node, ast.ImportFrom):
                origin = self._origin(node)
                found.append((origin, node))
                found.extend((f"{origin}.{each.name}", node) for each in node.names)
        return found

    @cached_property
    def local_names(self) -> dict[str, str]:
        """Return the full dotted name of each imported name, by its local name in the module."""
        names: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for each in node.names:
                    first = each.name.partition(".")[0]
                    names[each.asname or first] = each.name if each.asname else first
            elif isinstance(node, ast.ImportFrom):
                for each in node.names:
                    names[each.asname or each.name] = f"{self._origin(node)}.{each.name}"
        return names

    def dotted(self, node: ast.AST) -> str | None:
        """Return the full name that an expression like `a.b.c` stands for; None for any other expression."""
        if isinstance(node, ast.Name):
            return self.local_names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            before = self.dotted(node.value)
            return None if before is None else f"{before}.{node.attr}"
        return None

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        above = parts[: len(parts) - node.level + self.package]
        return ".".join([*above, *([node.module] if node.module else [])])


def parse(name: str, source: str, package: bool = False) -> Module:
    return Module(name, ast.parse(source), package)


def load(root: Path) -> list[Module]:
    """Parse all modules of the product below `root`."""
    modules = []
    for path in sorted(each for package in PACKAGES for each in (root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if package else parts)
        modules.append(parse(name, path.read_text(), package))
    return modules


@cache
def part_of(name: str) -> str | None:
    """Return the most specific part in DIRECTIONS that contains the module; None if no part does.

    The parts `syncsvc` and `verifier` contain only the `__init__` modules of these packages.
    """
    fitting = [
        part for part in DIRECTIONS if (name == part if part in PACKAGES else within(name, part))
    ]
    return max(fitting, key=len, default=None)


def imported_modules(module: Module, known: set[str]) -> dict[str, ast.stmt]:
    """Return the modules in `known` that a module imports, each with the first statement that imports it.

    `from a import b` imports a.b if that is a module, else a.
    """
    found: dict[str, ast.stmt] = {}
    for name, node in module.imports:
        is_container = isinstance(node, ast.ImportFrom) and all(
            f"{name}.{each.name}" in known for each in node.names
        )
        if name in known and not is_container:
            found.setdefault(name, node)
    return found


def wrong_directions(modules: Iterable[Module]) -> Iterator[str]:
    """Yield modules in no layer, imports against the layers, and imports of the driver in verifier.runtime."""
    for module in modules:
        part = part_of(module.name)
        if part is None:
            yield f"{module.name} lies in no layer"
            continue
        for name, node in module.imports:
            target = part_of(name)
            wrong = target is not None and target not in DIRECTIONS[part]
            driver = part == "verifier.runtime" and within(name, *DRIVER)
            if driver or wrong and not _only_leads_to_parts(node, name):
                yield f"{module.at(node)} imports {name}"


def _only_leads_to_parts(node: ast.stmt, name: str) -> bool:
    """Return whether a statement only imports parts that are below `name`, as in `from verifier import runtime`."""
    return isinstance(node, ast.ImportFrom) and all(
        f"{name}.{each.name}" in DIRECTIONS for each in node.names
    )


def cycles(modules: Iterable[Module]) -> Iterator[str]:
    """Yield one cycle of modules that import each other, as text; nothing if there is no cycle.

    Imports inside functions and type-only imports count, too.
    """
    listed = list(modules)
    known = {module.name for module in listed}
    graph = {module.name: set(imported_modules(module, known)) for module in listed}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield " -> ".join(error.args[1])


def hidden_imports(modules: Iterable[Module]) -> Iterator[str]:
    """Yield the imports by a string (`importlib.import_module`), which the other rules cannot see."""
    for module, call in _calls(modules):
        if module.dotted(call.func) in ("importlib.import_module", "__import__"):
            yield f"{module.at(call)} imports by a string"


def threads(modules: Iterable[Module]) -> Iterator[str]:
    """Yield each place outside the allowed modules that uses a class or function which starts threads."""
    for module in modules:
        if module.name in THREAD_STARTERS or within(module.name, SANDBOX):
            continue
        for node in module.nodes:
            if isinstance(node, ast.Name | ast.Attribute) and module.dotted(node) in STARTS_THREADS:
                yield f"{module.at(node)} uses {module.dotted(node)}"


def sleeps(modules: Iterable[Module]) -> Iterator[str]:
    """Yield each use of time.sleep, which is forbidden because a stop token cannot interrupt it."""
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.Name | ast.Attribute) and module.dotted(node) == "time.sleep":
                yield f"{module.at(node)} sleeps"


def prints(modules: Iterable[Module]) -> Iterator[str]:
    for module, call in _calls(modules):
        prints_it = isinstance(call.func, ast.Name) and call.func.id == "print"
        if prints_it and not MAY_PRINT & set(module.name.split(".")):
            yield f"{module.at(call)} prints"


def vague_names(modules: Iterable[Module]) -> Iterator[str]:
    for module in modules:
        if VAGUE_NAMES & set(module.name.split(".")):
            yield f"{module.name} says nothing"


def impure_modules(modules: Iterable[Module]) -> Iterator[str]:
    """Yield imports of the driver, the web framework or threads in modules that must be pure."""
    for module in modules:
        if not within(module.name, *PURE):
            continue
        for name, node in module.imports:
            lock = within(name, "threading") and module.name in LOCK_HOLDERS
            if within(name, *IMPURE_IMPORTS) and not lock:
                yield f"{module.at(node)} imports {name}"


def broad_excepts(modules: Iterable[Module]) -> Iterator[str]:
    """Yield each `except` and `contextlib.suppress` that catches every exception where this is not allowed."""
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.ExceptHandler | ast.Call) and _is_broad(module, node):
                function = _function_around(module, node)
                if (module.name, function) not in BROAD_EXCEPTS_ALLOWED:
                    yield f"{module.at(node)} in {function or 'the module'} catches everything"


def _function_around(module: Module, node: ast.ExceptHandler | ast.Call) -> str:
    """Return the name of the innermost function that contains the node; an empty string if no function does."""
    around = [
        each
        for each in module.nodes
        if isinstance(each, Function) and each.lineno <= node.lineno <= (each.end_lineno or 0)
    ]
    # Outer functions come first.
    return around[-1].name if around else ""


def _is_broad(module: Module, node: ast.ExceptHandler | ast.Call) -> bool:
    caught: list[ast.expr | None] = []
    if isinstance(node, ast.ExceptHandler):
        caught = list(node.type.elts) if isinstance(node.type, ast.Tuple) else [node.type]
    elif module.dotted(node.func) == "contextlib.suppress":
        caught = list(node.args)
    names = {"bare" if each is None else module.dotted(each) for each in caught}
    return bool(names & {"bare", "Exception", "BaseException", "builtins.Exception"})


def long_functions(modules: Iterable[Module]) -> Iterator[str]:
    for module in modules:
        for node in module.nodes:
            if isinstance(node, Function):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    yield f"{module.at(node)} {node.name} has {lines} lines"


def log_fields(modules: Iterable[Module]) -> Iterator[str]:
    """Yield extra fields of log calls whose names are those of standard fields (see LOG_FIELDS_TAKEN)."""
    for module, call in _calls(modules):
        for keyword in call.keywords:
            if keyword.arg == "extra" and isinstance(keyword.value, ast.Dict):
                for key in keyword.value.keys:
                    if isinstance(key, ast.Constant) and key.value in LOG_FIELDS_TAKEN:
                        yield f"{module.at(call)} logs a field {key.value!r}"


def endless_warnings(modules: Iterable[Module]) -> Iterator[str]:
    """Yield each kind of warning that is used, but that no function ends: it would stay in the progress forever.

    A function ends the kind that it names in a call of `end_warning`; if it ends a variable, all kinds that it names.
    """
    used: set[str] = set()
    ended: set[str] = set()
    for module in modules:
        used |= _warning_kinds(module.nodes)
        for function in (each for each in module.nodes if isinstance(each, Function)):
            inside = list(ast.walk(function))
            for call in inside:
                if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "end_warning":
                    ended |= _warning_kinds(call.args) or _warning_kinds(inside)
    yield from (f"no function ends WarningKind.{kind}" for kind in sorted(used - ended))


def _warning_kinds(nodes: Iterable[ast.AST]) -> set[str]:
    return {
        each.attr
        for each in nodes
        if isinstance(each, ast.Attribute)
        and isinstance(each.value, ast.Name)
        and each.value.id == "WarningKind"
    }


def _calls(modules: Iterable[Module]) -> Iterator[tuple[Module, ast.Call]]:
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.Call):
                yield module, node


RULES = (
    wrong_directions,
    cycles,
    hidden_imports,
    threads,
    sleeps,
    prints,
    vague_names,
    impure_modules,
    broad_excepts,
    long_functions,
    log_fields,
    endless_warnings,
)
