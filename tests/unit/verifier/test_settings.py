"""Tests the verifier's settings, their documented defaults, and options that cannot be combined."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import syncsvc
import verifier
from verifier.cluster.connection_source import ConnectionSource
from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.namespace import Namespace
from verifier.compare.documents import Mode
from verifier.compare.scope import Scope
from verifier.runtime.options import Form, as_rst
from verifier.settings import PREFIX, TABLE, Settings, read_settings

pytestmark = pytest.mark.usefixtures("clean_environment")


def from_option(uri: str) -> ConnectionSource:
    return ConnectionSource("any", uri)


URIS = ["--srcURI", "mongodb://a", "--destURI", "mongodb://b"]
OWN = "__mdb_internal_syncsvc_verifier"
ALL = [*URIS, "--verifyAll"]
DEFAULTS = Settings(
    source=from_option("mongodb://a"),
    destination=from_option("mongodb://b"),
    metadata=from_option("mongodb://b"),
    metadata_database=OWN,
    scope=Scope(NamespaceFilter(exclude=({"database": OWN},))),
    mode=Mode.BINARY,
    workers=4,
    partition_size=64 << 20,
    grace_seconds=10,
    clean=False,
    start=False,
    check_once=False,
    port=27020,
    address="127.0.0.1",
    allowed_hosts=(),
    log_path=None,
    verbosity="INFO",
)


def scope(*arguments: str) -> Scope:
    return read_settings([*URIS, *arguments]).scope


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Read these arguments, which must be refused, and return the error message."""
    with pytest.raises(SystemExit) as raised:
        read_settings(arguments)
    assert raised.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("syncsvc-verifier: ")
    return message


def test_the_defaults_are_as_documented() -> None:
    assert read_settings(ALL) == DEFAULTS


def test_flags_are_read() -> None:
    flags = (
        "--metaURI mongodb://c --metaDBName __mdb_internal_mine --docCompareMethod ignoreFieldOrder --numWorkers 8 "
        "--partitionSizeMB 1 --graceSeconds 0 --clean --start --checkOnce --serverPort 0 --bindAddress ::1 "
        "--allowedHosts a,b.c --logPath /x/y --logLevel debug"
    )
    assert read_settings([*ALL, *flags.split()]) == replace(
        DEFAULTS,
        metadata=from_option("mongodb://c"),
        metadata_database="__mdb_internal_mine",
        scope=Scope(NamespaceFilter(exclude=({"database": "__mdb_internal_mine"},))),
        mode=Mode.IGNORE_FIELD_ORDER,
        workers=8,
        partition_size=1 << 20,
        grace_seconds=0,
        clean=True,
        start=True,
        check_once=True,
        port=0,
        address="::1",
        allowed_hosts=("a", "b.c"),
        log_path=Path("/x/y"),
        verbosity="DEBUG",
    )


@pytest.mark.parametrize(
    "given, uri",
    [
        ("h", "mongodb://h"),
        ("h:27017", "mongodb://h:27017"),
        ("h:1,i:2", "mongodb://h:1,i:2"),
        ("mongodb://h", "mongodb://h"),
        ("mongodb+srv://h", "mongodb+srv://h"),
    ],
)
@pytest.mark.parametrize("flag", ["--destURI", "--dstURI"])
def test_hosts_alone_are_a_connection_string(flag: str, given: str, uri: str) -> None:
    settings = read_settings(["--srcURI", given, flag, given, "--metaURI", given, "--verifyAll"])
    assert (settings.source, settings.destination, settings.metadata) == (from_option(uri),) * 3


def test_the_alias_of_a_comparison_method_is_accepted() -> None:
    settings = read_settings([*ALL, "--docCompareMethod", "ignoreOrder"])
    assert settings.mode is Mode.IGNORE_FIELD_ORDER


FILTERS: list[dict[str, Any]] = [
    {"database": "d", "collections": ["a", "b"]},
    {"databaseRegex": {"pattern": "^x"}, "collectionsRegex": {"pattern": "y", "options": "i"}},
]
EXCLUDE = {"database": OWN}


def test_filters_are_those_of_the_sync_service() -> None:
    text = json.dumps(FILTERS)
    assert scope("--includeNamespaces", text) == Scope(NamespaceFilter((*FILTERS,), (EXCLUDE,)))
    assert scope("--includeNamespaces", text, "--excludeNamespaces", text) == Scope(
        NamespaceFilter((*FILTERS,), (*FILTERS, EXCLUDE))
    )
    assert scope("--verifyAll", "--excludeNamespaces", text) == Scope(
        NamespaceFilter((), (*FILTERS, EXCLUDE))
    )


def test_a_file_holds_everything_as_yaml(tmp_path: Path) -> None:
    path = tmp_path / "verifier.yaml"
    path.write_text(
        "srcURI: a:1\ndstURI: b:2\nincludeNamespaces:\n- {database: d, collections: [x, '1']}\n"
        "start: true\nclean: false\n"
    )
    settings = read_settings(["--configFile", str(path)])
    assert settings.source == from_option("mongodb://a:1")
    assert settings.destination == from_option("mongodb://b:2")
    assert settings.scope.namespaces.include == ({"database": "d", "collections": ["x", "1"]},)
    assert (settings.start, settings.clean) == (True, False)


PAIRS = [
    (["--srcNamespace", "a.b"], [{"database": "a", "collections": ["b"]}], {}),
    (["--srcNamespace", "a.b.c"], [{"database": "a", "collections": ["b.c"]}], {}),
    (
        ["--srcNamespace", "a.b,a.c", "--srcNamespace", "d"],
        [
            {"database": "a", "collections": ["b"]},
            {"database": "a", "collections": ["c"]},
            {"database": "d"},
        ],
        {},
    ),
    (
        ["--srcNamespace", "a.b,c", "--dstNamespace", "x.y,z"],
        [{"database": "a", "collections": ["b"]}, {"database": "c"}],
        {("a", "b"): ("x", "y"), ("c", ""): ("z", "")},
    ),
    (
        ["--srcNamespace=a.b,c.d", "--dstNamespace=a.b", "--dstNamespace=c.e"],
        [{"database": "a", "collections": ["b"]}, {"database": "c", "collections": ["d"]}],
        {("c", "d"): ("c", "e")},
    ),
    (
        ["--srcNamespace", "a,a.b", "--dstNamespace", "x,y.z"],
        [{"database": "a"}, {"database": "a", "collections": ["b"]}],
        {("a", ""): ("x", ""), ("a", "b"): ("y", "z")},
    ),
]


@pytest.mark.parametrize("arguments, include, renamed", PAIRS)
def test_names_are_paired_by_position(
    arguments: list[str],
    include: list[dict[str, Any]],
    renamed: dict[tuple[str, str], tuple[str, str]],
) -> None:
    names = {Namespace(*source): Namespace(*other) for source, other in renamed.items()}
    assert scope(*arguments) == Scope(NamespaceFilter((*include,), (EXCLUDE,)), names)


@pytest.mark.parametrize(
    "arguments, said",
    [
        ([], "no namespaces are selected: add --verifyAll, --includeNamespaces or"),
        (["--excludeNamespaces", "[]"], "no namespaces are selected"),
        (["--verifyAll", "--srcNamespace", "a.b"], "--verifyAll and --srcNamespace cannot be"),
        (["--verifyAll", "--includeNamespaces", "[]"], "--verifyAll and --includeNamespaces"),
        (["--dstNamespace", "a.b"], "--dstNamespace requires --srcNamespace"),
        (["--verifyAll", "--dstNamespace", "a.b"], "--dstNamespace requires --srcNamespace"),
        (
            ["--srcNamespace", "a.b", "--excludeNamespaces", "[]"],
            "--excludeNamespaces cannot be combined with --srcNamespace",
        ),
        (["--includeNamespaces", "[]"], "includeNamespaces: Shorter than minimum length 1"),
        (["--includeNamespaces", "null"], "includeNamespaces: Field may not be null"),
        (
            ["--verifyAll", "--excludeNamespaces", "null"],
            "excludeNamespaces: Field may not be null",
        ),
        (["--includeNamespaces", "x"], "--includeNamespaces cannot be read as JSON"),
        (["--includeNamespaces", "{}"], "includeNamespaces: Not a valid list"),
        (["--includeNamespaces", "[1]"], "includeNamespaces[0]: Invalid input type"),
        (["--includeNamespaces", '[{"database": "local"}]'], "includeNamespaces[0].database"),
        (["--verifyAll", "--excludeNamespaces", '[{"x": 1}]'], "excludeNamespaces[0].x: Unknown"),
        (
            ["--srcNamespace", "a.b,c.d", "--dstNamespace", "a.b"],
            "(2 in --srcNamespace, 1 in --dstNamespace)",
        ),
        (["--srcNamespace", "a", "--dstNamespace", "b.c"], "a and b.c: a database can only"),
        (["--srcNamespace", "a.b", "--dstNamespace", "c"], "a.b and c: a database can only"),
        (["--srcNamespace", "a.b,a.b"], "a.b and a.b would overlap on the destination"),
        (["--srcNamespace", "a,a.b"], "a and a.b would overlap on the destination"),
        (
            ["--srcNamespace", "a.b,c.d", "--dstNamespace", "x.y,x.y"],
            "a.b and c.d would overlap on the destination",
        ),
        (
            ["--srcNamespace", "a,b.c", "--dstNamespace", "x,x.c"],
            "a and b.c would overlap on the destination",
        ),
        (
            ["--srcNamespace", "a.b,c.d", "--dstNamespace", "c.d,e.f"],
            "a.b cannot be paired with c.d, because the latter name overlaps with c.d in --srcNamespace",
        ),
        (["--srcNamespace", "a,b", "--dstNamespace", "b,a"], "a cannot be paired with b"),
        (["--srcNamespace", "a.b,c", "--dstNamespace", "c.b,d"], "a.b cannot be paired with c.b"),
        (["--srcNamespace", "a."], "a. is neither database.collection nor a database"),
        (["--srcNamespace", ".a"], "srcNamespace[0].database: Shorter than minimum length 1"),
        (["--srcNamespace", "a.b,"], "srcNamespace[1].database: Shorter"),
        (["--srcNamespace", "admin"], "srcNamespace[0].database: System and reserved databases"),
        (["--srcNamespace", "a.system.js"], "srcNamespace[0].collections[0]: System collections"),
        (["--srcNamespace", "a", "--dstNamespace", "config"], "dstNamespace[0].database: System"),
        (["--srcNamespace", f"{OWN}.x"], "srcNamespace[0].database: System and reserved"),
        (["--verifyAll", "--metaDBName", "admin"], "'admin' must begin with __mdb_internal"),
        (["--verifyAll", "--metaDBName", "shop"], "'shop' must begin with __mdb_internal"),
        (["--verifyAll", "--metaDBName", ""], "--metaDBName: '' is not a valid database name"),
        (["--verifyAll", "--metaDBName", "a.b"], "--metaDBName: 'a.b' is not a valid"),
        (["--verifyAll", "--metaDBName", "ä" * 32], "is not a valid database name"),
        (["--verifyAll", "--numWorkers", "0"], "'0' is not a whole number from 1 to 64"),
        (["--verifyAll", "--numWorkers", "65"], "--numWorkers"),
        (["--verifyAll", "--partitionSizeMB", "0"], "--partitionSizeMB"),
        (["--verifyAll", "--docCompareMethod", "hash"], "invalid choice: 'hash'"),
        (["--verifyAll", "--serverPort", "65536"], "--serverPort"),
        (["--verifyAll", "--destUri", "x"], "--destUri"),
    ],
)
def test_invalid_combinations_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert said in refusal(capsys, *URIS, *arguments)


def test_all_violations_are_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    filters = '[{"database": "admin"}, {"database": "a", "collections": []}]'
    message = refusal(capsys, *URIS, "--includeNamespaces", filters)
    assert "[0].database" in message and "[1].collections" in message
    message = refusal(capsys, *ALL, "--srcNamespace", "a", "--metaDBName", "admin")
    assert "cannot be combined" in message and "admin" in message


@pytest.mark.parametrize("missing", ["srcURI", "destURI"])
def test_both_clusters_are_needed(capsys: pytest.CaptureFixture[str], missing: str) -> None:
    (other,) = {"srcURI", "destURI"} - {missing}
    message = refusal(capsys, f"--{other}", "mongodb://user:S3cr3t@host", "--verifyAll")
    assert f"--{missing}" in message and "S3cr3t" not in message


def test_files_with_connection_strings_take_the_place_of_the_strings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = read_settings(["--srcURIFile", "/a", "--destURIFile", "/b", "--verifyAll"])
    assert [each.path for each in (settings.source, settings.metadata)] == [Path("/a"), Path("/b")]
    assert [each.cluster for each in settings.sources] == ["source", "destination"]
    assert "cannot be combined" in refusal(capsys, *URIS, "--verifyAll", "--srcURIFile", "/a")


def test_the_environment_has_the_names_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"SRC_URI": "a", "DEST_URI": "b", "VERIFY_ALL": "true", "NUM_WORKERS": "7"}
    for name, value in values.items():
        monkeypatch.setenv(f"SYNCSVC_VERIFIER_{name}", value)
    settings = read_settings([])
    assert (settings.source, settings.workers) == (from_option("mongodb://a"), 7)


@pytest.mark.parametrize(
    "name, variable",
    [
        ("srcURI", "SRC_URI"),
        ("partitionSizeMB", "PARTITION_SIZE_MB"),
        ("metaDBName", "META_DB_NAME"),
        ("checkOnce", "CHECK_ONCE"),
    ],
)
def test_variables_are_split_into_words(name: str, variable: str) -> None:
    (option,) = (each for each in TABLE if each.name == name)
    assert option.variable(PREFIX) == f"SYNCSVC_VERIFIER_{variable}"


def test_every_option_is_documented() -> None:
    text = as_rst(TABLE, PREFIX)
    for option in TABLE:
        value = "" if option.form is Form.FLAG else f" {option.value}"
        assert all(f"``{flag}{value}``" in text for flag in option.flags)


def test_both_programs_have_one_version() -> None:
    assert verifier.__version__ == syncsvc.__version__
