"""Tests the settings of the sync service, with their documented defaults."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

from syncsvc.options import CLUSTERS
from syncsvc.settings import NO_EFFECT, TABLE, Settings, read_settings
from syncsvc.tuning import LOAD_LEVELS, LoadLevel
from verifier.cluster.connection_source import ConnectionSource
from verifier.runtime.options import Form, as_rst

pytestmark = pytest.mark.usefixtures("clean_environment")

URIS = ["--cluster0", "mongodb://a", "--cluster1", "mongodb://b"]


def sources(*uris: str) -> dict[str, ConnectionSource]:
    return {name: ConnectionSource(name, uri) for name, uri in zip(CLUSTERS, uris, strict=True)}


def test_the_defaults_are_as_documented() -> None:
    assert read_settings(URIS) == Settings(
        clusters=sources("mongodb://a", "mongodb://b"),
        port=27182,
        address="127.0.0.1",
        allowed_hosts=(),
        log_path=None,
        verbosity="INFO",
        load_level=LoadLevel(readers=2, writers=4, lanes=4, comparers=2),
        instance="coordinator",
    )


def test_flags_are_read() -> None:
    flags = "--port 0 --bindAddress ::1 --logPath /x/y --verbosity debug --loadLevel 1 --id me --eventSpoolMB 7"
    settings = read_settings([*URIS, *flags.split(), "--allowedHosts", "a,b.c"])
    assert settings.allowed_hosts == ("a", "b.c")
    assert (settings.port, settings.address, settings.instance) == (0, "::1", "me")
    assert (settings.log_path, settings.verbosity) == (Path("/x/y"), "DEBUG")
    assert settings.load_level == LoadLevel(1, 1, 1, 1)
    assert settings.event_spool_bytes == 7_000_000


def test_options_of_mongosync_without_effect_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("".join(f"{name}: true\n" for name in NO_EFFECT))
    flags = [f"--{name}" for name in NO_EFFECT]
    for settings in (read_settings([*URIS, *flags]), read_settings([*URIS, "--config", str(file)])):
        assert all(settings.options[name] is True for name in NO_EFFECT)
        assert settings == read_settings(URIS)


def test_a_file_of_mongosync_becomes_a_file_of_this_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "howto" / "from-mongosync.rst").read_text()
    old, new = re.findall(r"code-block:: yaml\n\n((?:    .*\n)+)", page)
    for name, text in (("old", old), ("new", new)):
        (tmp_path / name).write_text(dedent(text))
    with pytest.raises(SystemExit):
        read_settings(["--config", str(tmp_path / "old")])
    message = capsys.readouterr().err
    for hint in (
        "migrationName (use syncName)",
        "metricsLoggingFilepath (",
        "createIndexesBatchSize (",
    ):
        assert hint in message
    settings = read_settings(["--config", str(tmp_path / "new")])
    assert settings.options["syncName"] == "orders"
    assert settings.log_path == Path("/var/log/mongosync")


@pytest.mark.parametrize(
    "uri, logged",
    [
        ("mongodb://h", "mongodb://h"),
        ("h:1", "h:1"),
        ("u:S3cr3t@h", "<redacted>@h"),
        ("mongo://u:S3cr3t@x@h/?a=b", "<redacted>@h/?a=b"),
    ],
)
def test_credentials_are_not_logged_if_the_scheme_is_wrong(uri: str, logged: str) -> None:
    settings = read_settings(["--cluster0", uri, "--cluster1", "mongodb://b"])
    assert settings.options["cluster0"] == logged
    assert settings.clusters["cluster0"].text == uri


@pytest.mark.parametrize("level", ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "PANIC"])
def test_every_log_level_of_mongosync_is_accepted(level: str) -> None:
    assert read_settings([*URIS, "--verbosity", level]).verbosity == level


def test_a_higher_load_level_is_never_less() -> None:
    levels = [LOAD_LEVELS[number] for number in sorted(LOAD_LEVELS)]
    assert list(LOAD_LEVELS) == [1, 2, 3, 4]
    for name in ("readers", "writers", "lanes", "comparers"):
        numbers = [getattr(level, name) for level in levels]
        assert numbers == sorted(numbers) and numbers[0] >= 1 and numbers[-1] > numbers[0]


@pytest.mark.parametrize(
    "flag, value, shown",
    [
        ("--port", "65536", "'65536' is not a whole number from 0 to 65535"),
        ("--port", "-1", "--port"),
        ("--port", "http", "'http' is not a whole number from 0 to 65535"),
        ("--eventSpoolMB", "0", "'0' is not a whole number from 1 to 999999999"),
        ("--syncName", "", "'' is not a valid sync name: use 1 to 27 characters of a to z"),
        ("--syncName", "Sales", "'Sales' is not a valid sync name"),
        ("--syncName", "x" * 28, "use 1 to 27 characters"),
        ("--loadLevel", "0", "'0' is not a whole number from 1 to 4"),
        ("--loadLevel", "5", "'5' is not a whole number from 1 to 4"),
        ("--loadLevel", "2.5", "--loadLevel"),
        ("--verbosity", "LOUD", "invalid choice: 'LOUD'"),
    ],
)
def test_a_bad_value_is_refused(
    capsys: pytest.CaptureFixture[str], flag: str, value: str, shown: str
) -> None:
    with pytest.raises(SystemExit) as raised:
        read_settings([*URIS, f"{flag}={value}"])
    assert raised.value.code == 2
    message = capsys.readouterr().err
    assert flag in message and shown in message


@pytest.mark.parametrize("missing", ["cluster0", "cluster1"])
def test_both_clusters_are_needed(capsys: pytest.CaptureFixture[str], missing: str) -> None:
    given = [each for each in ("cluster0", "cluster1") if each != missing]
    with pytest.raises(SystemExit) as raised:
        read_settings([f"--{given[0]}", "mongodb://user:S3cr3t@host"])
    assert raised.value.code == 2
    message = capsys.readouterr().err
    assert f"--{missing}" in message and "S3cr3t" not in message


def test_files_with_connection_strings_take_the_place_of_the_strings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = read_settings(["--cluster0File", "/a", "--cluster1", "mongodb://b"])
    assert [each.path for each in settings.sources] == [Path("/a"), None]
    with pytest.raises(SystemExit):
        read_settings([*URIS, "--cluster1File", "/b"])
    assert "cluster1 and cluster1File cannot be combined" in capsys.readouterr().err


def test_the_environment_has_the_names_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNCSVC_CLUSTER0", "mongodb://x")
    monkeypatch.setenv("SYNCSVC_LOAD_LEVEL", "4")
    settings = read_settings(["--cluster1", "mongodb://y"])
    assert settings.clusters == sources("mongodb://x", "mongodb://y")
    assert settings.load_level is LOAD_LEVELS[4]


def test_the_name_of_a_sync_is_a_part_of_the_name_of_its_metadata_database() -> None:
    assert read_settings(URIS).database == "mongosync_reserved_for_internal_use"
    named = read_settings([*URIS, "--syncName", "sales-1"])
    assert named.sync_name == "sales-1"
    assert named.database == "mongosync_reserved_for_internal_use_sales-1"


def test_every_option_is_documented() -> None:
    text = as_rst(TABLE, "SYNCSVC")
    for option in TABLE:
        value = "" if option.form is Form.FLAG else f" {option.value}"
        assert f"``--{option.name}{value}``" in text
    assert "``SYNCSVC_BIND_ADDRESS``" in text


@pytest.mark.parametrize(
    "round_trip, factor, comparison",
    [(0.0, 1, 1), (0.009, 1, 1), (0.01, 2, 4), (0.049, 2, 4), (0.05, 4, 8), (3.0, 4, 8)],
)
def test_a_long_link_gets_more_threads(round_trip: float, factor: int, comparison: int) -> None:
    for level in LOAD_LEVELS.values():
        over = level.over(round_trip)
        assert (over.readers, over.writers, over.lanes) == (
            factor * level.readers,
            factor * level.writers,
            factor * level.lanes,
        )
        assert over.comparers == comparison * level.comparers
