"""Tests the API of a process that cannot reach its clusters: answers that need no cluster, and refusals by name.

Also tests commands that wait for the startup, and the numbers of requests that may wait or run at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Semaphore
from typing import Any

import pytest
from flask.testing import FlaskClient
from pymongo import MongoClient
from werkzeug.test import TestResponse

from syncsvc.app import create_app
from syncsvc.preflight.judgement import Judgement
from syncsvc.reports.standing import Role, Standing
from syncsvc.service import Service
from syncsvc.tuning import LOAD_LEVELS, Tuning
from tests.support.descriptions import assert_described
from tests.support.waiting import PATIENCE, wait_for
from tests.unit.deadlines import no_longer_than
from verifier.cluster.cluster import Cluster
from verifier.cluster.connect import Client
from verifier.cluster.facts import ClusterFacts, Topology
from verifier.runtime.commands import MOST_WAITING
from verifier.runtime.httpd import MOST_READERS
from verifier.runtime.observer import ignore
from verifier.runtime.tasks import Cancelled, StopToken
from verifier.runtime.waits import LongWait

NAMES = {"source": "cluster0", "destination": "cluster1"}


def refuse_to_spawn(name: str, work: object) -> None:
    assert name in ("reporter", "limits", "dashboards"), "nothing else is started"


def cluster(name: str, client: Client) -> Cluster:
    facts = ClusterFacts(
        Topology.REPLICA_SET, f"{name}.example:27017", (6, 0, 5), name, False, None
    )
    return Cluster(name, client, facts)


def idle_service(tuning: Tuning = Tuning()) -> Service:
    return Service("me", LOAD_LEVELS[1], refuse_to_spawn, ignore, StopToken(), tuning)


@pytest.fixture
def service() -> Service:
    """Return a service that is still starting: its commands wait for the startup longer than any test waits."""
    return idle_service(Tuning(startup_wait=2 * PATIENCE))


@pytest.fixture
def api(service: Service) -> Iterator[FlaskClient]:
    with MongoClient[dict[str, Any]]("mongodb://nowhere", connect=False) as client:
        clusters = {name: cluster(name, client) for name in NAMES.values()}
        service.connect(clusters)
        service.initialize(None)
        yield create_app(service).test_client()


def test_progress_is_idle(api: FlaskClient) -> None:
    answer = api.get("/api/v1/progress")
    assert answer.status_code == 200
    body = answer.get_json()
    assert body["success"] is True
    assert (body["progress"]["state"], body["progress"]["canCommit"]) == ("IDLE", False)


def test_long_waits_without_a_sync_are_not_those_of_the_next_one() -> None:
    service = idle_service()
    service.each_second((LongWait("The lease cannot be read", "", 40.0),))
    assert service._progress.begun
    service.keep_journal()
    assert not service._progress.begun


def test_without_a_sync_there_are_no_namespaces(api: FlaskClient) -> None:
    answer = api.get("/api/v1/namespaces", query_string={"database": "shop", "limit": "10"})
    assert (answer.status_code, answer.get_json()) == (
        200,
        {"success": True, "namespaces": [], "next": None},
    )


@pytest.mark.parametrize("query", ["limit=0", "limit=10001", "limit=many", "after=", "limt=1"])
def test_bad_parameters_are_refused(api: FlaskClient, query: str) -> None:
    answer = api.get(f"/api/v1/namespaces?{query}&database=shop")
    assert (answer.status_code, answer.get_json()["error"]) == (400, "InvalidRequest")


def test_metrics_are_read_from_no_cluster(api: FlaskClient) -> None:
    answer = api.get("/metrics")
    assert answer.status_code == 200
    assert 'mongosync_state{state="IDLE"} 1.0' in answer.text.splitlines()


@pytest.mark.parametrize(
    "path, body, status, error",
    [
        ("start", b"{", 400, "MalformedBody"),
        ("start", b"[]", 400, "MalformedBody"),
        ("start", b"", 400, "InvalidRequest"),
        ("start", b"{}", 400, "InvalidRequest"),
        ("start", b'{"source": "cluster0", "destination": "x"}', 400, "UnknownCluster"),
        ("start", b'{"source": "cluster0", "destination": "cluster0"}', 400, "SameCluster"),
        (
            "start",
            b'{"source": "x", "destination": "x", "reversible": true}',
            400,
            "UnknownCluster",
        ),
        ("preflight", b"{", 400, "MalformedBody"),
        ("preflight", b"[]", 400, "MalformedBody"),
        ("preflight", b"", 400, "InvalidRequest"),
        ("preflight", b'{"source": "cluster0"}', 400, "InvalidRequest"),
        ("commit", b"x", 400, "MalformedBody"),
        ("commit", b'{"now": true}', 400, "InvalidRequest"),
        ("commit", b"{}", 409, "InvalidState"),
        ("commit", b"", 409, "InvalidState"),
        ("pause", b"x", 400, "MalformedBody"),
        ("pause", b'{"now": true}', 400, "InvalidRequest"),
        ("pause", b"{}", 409, "InvalidState"),
        ("pause", b"", 409, "InvalidState"),
        ("resume", b"[]", 400, "MalformedBody"),
        ("resume", b'{"now": true}', 400, "InvalidRequest"),
        ("resume", b"{}", 409, "InvalidState"),
        ("resume", b"", 409, "InvalidState"),
        ("reset", b"x", 400, "MalformedBody"),
        ("reset", b"{}", 400, "InvalidRequest"),
        ("reset", b'{"confirm": "cluster1", "dryRun": 1}', 400, "InvalidRequest"),
        ("reset", b'{"confirm": "cluster1"}', 409, "InvalidState"),
        ("reset", b'{"confirm": "cluster1", "dryRun": true}', 409, "InvalidState"),
        ("unpause", b"{}", 404, "NotFound"),
        ("progress", b"{}", 405, "MethodNotAllowed"),
    ],
)
def test_a_refusal_has_a_name(
    api: FlaskClient, path: str, body: bytes, status: int, error: str
) -> None:
    answer = api.post(f"/api/v1/{path}", data=body)
    assert (answer.status_code, answer.get_json()["error"]) == (status, error)
    assert answer.get_json()["success"] is False
    assert api.get("/api/v1/progress").get_json()["progress"]["state"] == "IDLE"


@pytest.mark.parametrize(
    "method, path, body, named",
    [
        ("POST", "start", b'{"source": "cluster0", "source": "cluster1"}', '"source" twice'),
        (
            "POST",
            "preflight",
            b'{"documentFilter": [{"filter": {"$or": [{"a": 1}], "$or": [{"b": 1}]}}]}',
            '"$or" twice',
        ),
        ("POST", "start", b'{"documentFilter": [{"filter": {"a": NaN}}]}', "NaN is not JSON"),
        ("PATCH", "limits", b'{"threads": 1, "threads": 2}', '"threads" twice'),
        ("PATCH", "limits", b'{"eventsPerSecond": -Infinity}', "-Infinity is not JSON"),
        ("PATCH", "limits", b'{"windows": [{"from": "1", "from": "2"}]}', '"from" twice'),
    ],
)
def test_a_body_from_which_something_would_be_dropped_is_refused(
    api: FlaskClient, method: str, path: str, body: bytes, named: str
) -> None:
    answer = api.open(f"/api/v1/{path}", method=method, data=body)
    assert (answer.status_code, answer.get_json()["error"]) == (400, "MalformedBody")
    assert named in answer.get_json()["errorDescription"]


def test_all_violations_of_a_preflight_are_answered(api: FlaskClient) -> None:
    body = b'{"source": "x", "destination": "x", "reversible": true, "buildIndexes": "never"}'
    answer = api.post("/api/v1/preflight", data=body)
    assert answer.status_code == 200
    found = answer.get_json()
    assert set(found) == {"success", "violations", "warnings", "missingFeatures", "estimates"}
    assert found["success"] is True and found["warnings"] == []
    assert [each["error"] for each in found["violations"]] == [
        *("UnknownCluster", "UnknownCluster", "SameCluster"),
        *("ReversibleNeedsWriteBlocking", "ReversibleWithoutIndexes"),
    ]
    assert all(each["errorDescription"].endswith(".") for each in found["violations"])
    assert set(found["estimates"].values()) == {None}
    refused = api.post("/api/v1/start", data=body).get_json()["errorDescription"]
    assert all(f"{each['error']}: " in refused for each in found["violations"])


@pytest.mark.parametrize("path", ["start", "preflight", "pause", "resume", "commit"])
def test_commands_are_posted(api: FlaskClient, path: str) -> None:
    assert api.get(f"/api/v1/{path}").status_code == 405


def test_a_refused_command_does_not_block_the_next(api: FlaskClient) -> None:
    for _ in range(2):
        assert api.post("/api/v1/commit").get_json()["error"] == "InvalidState"


COMMANDS = {
    "start": {"source": "cluster0", "destination": "cluster1"},
    "preflight": {"source": "cluster0", "destination": "cluster1"},
    "pause": {},
    "resume": {},
    "commit": {},
    "reverse": {},
    "reset": {"confirm": "cluster1"},
}


@pytest.mark.parametrize("path, body", COMMANDS.items(), ids=COMMANDS)
def test_a_command_waits_for_the_startup_for_a_limited_time(
    path: str, body: dict[str, Any]
) -> None:
    service = idle_service(Tuning(startup_wait=0.0))
    service.gate.startup.step = "connecting to cluster1"
    api = create_app(service).test_client()
    answer = api.post(f"/api/v1/{path}", json=body)
    assert (answer.status_code, answer.get_json()["error"]) == (409, "InvalidState")
    description = answer.get_json()["errorDescription"]
    assert "The state is INITIALIZING: the process is connecting to cluster1." in description
    assert api.get("/api/v1/progress").get_json()["progress"]["state"] == "INITIALIZING"


@pytest.fixture
def posted(service: Service) -> Iterator[list[Future[TestResponse]]]:
    """Send as many commands as may wait for the startup at the same time, and yield the futures of their answers."""
    app = create_app(service)
    with ThreadPoolExecutor(MOST_WAITING) as threads:
        yield [
            threads.submit(app.test_client().post, "/api/v1/commit") for _ in range(MOST_WAITING)
        ]
        service.gate.startup.end()


def waiting(service: Service) -> int:
    return MOST_WAITING - service.gate.startup._slots._value


def test_waiting_commands_continue_in_the_state_reached(
    service: Service, posted: list[Future[TestResponse]]
) -> None:
    wait_for(lambda: waiting(service) == MOST_WAITING, "all wait")
    with MongoClient[dict[str, Any]]("mongodb://nowhere", connect=False) as client:
        service.connect({name: cluster(name, client) for name in NAMES.values()})
        service.initialize(None)
        refused = [each.result().get_json() for each in posted]
    assert {each["error"] for each in refused} <= {"InvalidState", "CommandInProgress"}
    assert any("the state is IDLE" in each["errorDescription"] for each in refused)


def test_commands_that_wait_are_refused_when_the_process_stops(
    service: Service, posted: list[Future[TestResponse]]
) -> None:
    wait_for(lambda: waiting(service) == MOST_WAITING, "all wait")
    service.gate.stop_waiting()
    for each in posted:
        assert "the process is stopping" in each.result().get_json()["errorDescription"]


def test_the_number_of_waiting_commands_is_limited(
    service: Service, posted: list[Future[TestResponse]]
) -> None:
    wait_for(lambda: waiting(service) == MOST_WAITING, "all wait")
    with no_longer_than(PATIENCE):
        answer = create_app(service).test_client().post("/api/v1/commit")
    assert answer.get_json()["error"] == "InvalidState"


def test_commands_that_wait_are_refused_when_another_daemon_is_active(
    service: Service, posted: list[Future[TestResponse]]
) -> None:
    wait_for(lambda: waiting(service) == MOST_WAITING, "all wait")
    service.gate.show_standing(Standing())
    assert {each.result().get_json()["error"] for each in posted} == {"NotActive"}


def test_a_command_is_refused_when_its_term_ends(
    api: FlaskClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command must be refused with NotActive if its process with `--standby` stops being active meanwhile.

    Its calls to the clusters are then cancelled: here, the judgement of the clusters raises Cancelled.
    """

    def interrupted(*arguments: object) -> Judgement:
        service.gate.show_standing(Standing())
        raise Cancelled("the term has ended")

    monkeypatch.setattr("syncsvc.service.judge", interrupted)
    for command in ("start", "preflight"):
        service.gate.show_standing(Standing(Role.ACTIVE))
        service.gate.startup.end()
        answer = api.post(f"/api/v1/{command}", json=NAMES)
        assert (answer.status_code, answer.get_json()["error"]) == (409, "NotActive")


def test_a_daemon_active_again_accepts_commands_after_its_startup(
    api: FlaskClient, service: Service
) -> None:
    service.gate.show_standing(Standing())
    service.forget()
    assert api.post("/api/v1/pause").get_json()["error"] == "NotActive"
    service.gate.show_standing(Standing(Role.ACTIVE))
    assert api.get("/readyz").status_code == 503
    service.initialize(None)
    assert "the state is IDLE" in api.post("/api/v1/pause").get_json()["errorDescription"]


def test_requests_that_read_from_a_cluster_share_a_maximum(
    api: FlaskClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a cluster hangs, requests that read from it must not block all threads that answer requests."""
    reading, hangs = Semaphore(0), Event()

    def users() -> dict[str, Any]:
        reading.release()
        hangs.wait(PATIENCE)
        return {}

    monkeypatch.setattr(service.cluster_queries, "users", users)
    with ThreadPoolExecutor(MOST_READERS) as threads:
        get = api.application.test_client().get
        answers = [threads.submit(get, "/api/v1/users") for _ in range(MOST_READERS)]
        assert all(reading.acquire(timeout=PATIENCE) for _ in answers)
        refused = [
            api.get("/api/v1/users"),
            api.get("/api/v1/report"),
            api.post("/api/v1/repair", json={"dryRun": True}),
        ]
        hangs.set()
        assert {each.get_json()["error"] for each in refused} == {"TooManyReaders"}
        assert {each.result().status_code for each in answers} == {200}


def test_a_second_concurrent_preflight_is_refused(
    api: FlaskClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preflight must be refused while another one runs.

    Otherwise, if a cluster hangs, several preflights could block all threads that answer requests.
    """
    path, refused = "/api/v1/preflight", list[TestResponse]()

    def judged_during_another(*arguments: object) -> Judgement:
        refused.append(create_app(service).test_client().post(path, json=NAMES))
        return Judgement(())

    monkeypatch.setattr("syncsvc.service.judge", judged_during_another)
    assert api.post(path, json=NAMES).status_code == 200
    (answer,) = refused
    assert (answer.status_code, answer.get_json()["error"]) == (409, "CommandInProgress")
    assert_described("syncsvc", "post", path, 409, answer.content_type, answer.text)
