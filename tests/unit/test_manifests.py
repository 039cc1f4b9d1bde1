"""The manifests for Kubernetes fit the published schemas, each other, and the options of the processes."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

import syncsvc.settings
import verifier.settings
from syncsvc import __version__
from syncsvc.desired import DesiredState
from syncsvc.schemas import StartSchema
from tests.support import manifests, pages
from tests.support.tokens import write_tokens
from verifier.runtime.access import Role, TokenFile
from verifier.runtime.errors import OperationError
from verifier.runtime.schemas import load

of_each_kind = pytest.mark.parametrize("kind", manifests.KINDS)
# The oldest supported version of Kubernetes at the time of writing, and the newest that the package knows.
VERSIONS = ("1.33", kubernetes_validate.latest_version())


def settings_of(kind: str, tmp_path: Path) -> Any:
    """Return the settings that the process in a container reads from its arguments and from the mounted files.

    `kind` is the folder of the manifests. Copies of the mounted files are written to `tmp_path`.
    """
    container = manifests.container(kind)
    paths = {}
    for number, (inside, outside) in enumerate(manifests.files(kind).items()):
        paths[inside] = tmp_path / f"{number}-{outside.name}"
        paths[inside].write_bytes(outside.read_bytes())
    arguments = container["args"]
    for inside, path in paths.items():
        arguments = [each.replace(inside, str(path)) for each in arguments]
    read = verifier.settings if "verifier" in container["name"] else syncsvc.settings
    return read.read_settings(arguments)


@of_each_kind
@pytest.mark.parametrize("version", VERSIONS)
def test_the_resources_fit_the_published_schemas(kind: str, version: str) -> None:
    found = list(manifests.resources(kind))
    assert len(found) > 2
    for each in found:
        kubernetes_validate.validate(each, version, strict=True)


@of_each_kind
def test_each_file_and_account_that_a_pod_uses_exists(kind: str) -> None:
    found = list(manifests.resources(kind))
    accounts = {each["metadata"]["name"] for each in found if each["kind"] == "ServiceAccount"}
    assert manifests.pod(kind)["serviceAccountName"] in accounts
    assert all(path.is_file() for path in manifests.files(kind).values())


@of_each_kind
def test_the_selectors_select_the_pods(kind: str) -> None:
    found = list(manifests.resources(kind))
    (owner,) = (each for each in found if "template" in each.get("spec", {}))
    labels = owner["spec"]["template"]["metadata"]["labels"].items()
    for each in found:
        spec = each.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector") or {}
        assert selector.get("matchLabels", selector).items() <= labels


@of_each_kind
def test_the_container_has_no_privileges(kind: str) -> None:
    pod, container = manifests.pod(kind), manifests.container(kind)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["image"] == f"syncsvc:{__version__}"


@of_each_kind
def test_services_set_no_options(kind: str) -> None:
    # Kubernetes would set SYNCSVC_PORT to a URL, because a service has the name syncsvc.
    assert manifests.pod(kind)["enableServiceLinks"] is False


@pytest.mark.parametrize("kind", ["shared", "standby"])
def test_pods_that_are_not_ready_can_be_reached_and_evicted(kind: str) -> None:
    specs = {each["kind"]: each["spec"] for each in manifests.resources(kind) if "spec" in each}
    assert specs["Service"]["publishNotReadyAddresses"] is True
    assert specs["PodDisruptionBudget"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_an_update_spreads_the_new_pods() -> None:
    (constraint,) = manifests.pod("standby")["topologySpreadConstraints"]
    assert constraint["topologyKey"] == "kubernetes.io/hostname"
    # The label by which a Deployment tells the pods of one version from those of another.
    assert constraint["matchLabelKeys"] == ["pod-template-hash"]


def test_a_pod_of_several_accepts_requests_by_its_name() -> None:
    ids = manifests.FOLDER / "shared" / "ids"
    shell, flag, script, *rest = manifests.container("shared")["command"]
    script = script.replace("exec syncsvc", "printf '%s\\n'").replace(
        "/etc/syncsvc-start/ids", str(ids)
    )
    printed = subprocess.run(
        [shell, flag, script, *rest, "--allowedHosts=syncsvc"],
        env={**os.environ, "POD_INDEX": "1"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    clusters = ("--cluster0=mongodb://a", "--cluster1=mongodb://b")
    settings = syncsvc.settings.read_settings([*printed.split(), *clusters])
    assert settings.instance == "syncsvc-1"
    assert f"{socket.gethostname()}.syncsvc" in settings.allowed_hosts
    assert "syncsvc" in settings.allowed_hosts


@of_each_kind
def test_the_options_are_valid(kind: str, tmp_path: Path) -> None:
    settings_of(kind, tmp_path)


def test_the_file_of_the_verification_permits_filters(tmp_path: Path) -> None:
    path = tmp_path / "verifier.yaml"
    text = (manifests.FOLDER / "verification" / path.name).read_text()
    path.write_text(text.replace("verifyAll: true", "includeNamespaces: [{database: shop}]"))
    arguments = manifests.container("verification")["args"]
    settings = verifier.settings.read_settings(
        [each.replace("/etc/syncsvc/verifier.yaml", str(path)) for each in arguments]
    )
    assert settings.scope.namespaces.include == ({"database": "shop"},)


@pytest.mark.parametrize("kind", ["shared", "standby"])
def test_the_declared_start_is_valid(kind: str, tmp_path: Path) -> None:
    settings = settings_of(kind, tmp_path)
    options = load(StartSchema(), settings.start)
    assert settings.desired_state is DesiredState.RUNNING
    assert settings.standby == (kind == "standby")
    ids = (manifests.FOLDER / "shared" / "ids").read_text().split()
    assert options.instances == (tuple(ids) if kind == "shared" else ())


def test_the_end_deletes_everything_that_was_created() -> None:
    """The section "End" of howto/kubernetes must delete what its other sections create, above all the secrets.

    `delete --kustomize` does not delete the secrets that were generated for earlier states of the files of a folder:
    a label must select these.
    """
    blocks = [*pages.blocks(Path("docs/howto/kubernetes.rst"))]
    whole, single = (each.text for each in blocks if each.title == "End")
    created = "\n".join(each.text for each in blocks if each.title != "End")
    for namespace in re.findall(r"create namespace (\S+)", created):
        assert f"delete namespace {namespace}" in whole
    folders = set(re.findall(r"apply --kustomize (\S+)", created))
    assert folders == set(re.findall(r"delete --ignore-not-found --kustomize (\S+)", single))
    secrets = re.findall(r"create secret \S+ (\S+)", created)
    (deleted,) = re.findall(r"delete secret --ignore-not-found (.+)", single)
    assert secrets and {*secrets} == {*deleted.split()}
    (label,) = re.findall(r"delete secret,configmap --selector (\S+)", single)
    for kind in manifests.KINDS:
        labels = manifests.kustomization(kind)["generatorOptions"]["labels"]
        assert label in [f"{name}={value}" for name, value in labels.items()]


def test_the_network_policy_has_a_rule_for_webhooks() -> None:
    text = (manifests.FOLDER / "common" / "network-policy.yaml").read_text()
    before, comment, rule = text.partition("    # For --webhook")
    lines = [line.replace("# ", "", 1) for line in rule.splitlines()[1:]]
    policy = yaml.safe_load("\n".join([before, *lines]))
    assert comment and policy["spec"]["egress"][-1] == {"ports": [{"port": 443, "protocol": "TCP"}]}
    kubernetes_validate.validate(policy, VERSIONS[0], strict=True)


@pytest.mark.parametrize("kind", ["shared", "standby"])
def test_the_token_file_is_refused_until_the_tokens_are_replaced(kind: str, tmp_path: Path) -> None:
    text = (manifests.FOLDER / kind / "tokens").read_text()
    with pytest.raises(OperationError, match="Line 2"):
        TokenFile(write_tokens(tmp_path, text))
    for number in range(2):
        text = text.replace("REPLACE", f"{number}" * 64, 1)
    caller = TokenFile(write_tokens(tmp_path, text)).find("0" * 64)
    assert caller is not None and caller.role is Role.OPERATOR


@pytest.mark.parametrize(
    "path", sorted(manifests.FOLDER.rglob("*.yaml")), ids=lambda path: path.name
)
def test_the_file_is_yaml_with_a_mapping(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_the_alert_rules_are_up_to_date() -> None:
    assert manifests.RULES.read_text() == manifests.rules(), "outdated: run make reference"
    rules, alerts = (
        yaml.safe_load(path.read_text()) for path in (manifests.RULES, manifests.ALERTS)
    )
    assert rules["spec"] == alerts


@pytest.fixture
def monitor() -> dict[str, Any]:
    path = manifests.FOLDER / "monitoring" / "service-monitor.yaml"
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def test_the_monitor_scrapes_the_service(monitor: dict[str, Any]) -> None:
    (endpoint,) = monitor["spec"]["endpoints"]
    for kind in ("shared", "standby"):
        (service,) = (each for each in manifests.resources(kind) if each["kind"] == "Service")
        selector = monitor["spec"]["selector"]["matchLabels"]
        assert selector.items() <= service["metadata"]["labels"].items()
        assert endpoint["port"] in {each["name"] for each in service["spec"]["ports"]}


def test_each_namespace_has_its_own_job(monitor: dict[str, Any]) -> None:
    """The alert rules expect one scrape job per sync. Prometheus Operator names the job after the service."""
    (endpoint,) = monitor["spec"]["endpoints"]
    labels = {"job": "syncsvc", "namespace": "shop"}
    for each in endpoint["relabelings"]:
        values = [labels[name] for name in each["sourceLabels"]]
        labels[each["targetLabel"]] = each["separator"].join(values)
    assert labels == {"job": "syncsvc/shop", "namespace": "shop"}


def test_every_resource_of_the_monitoring_exists() -> None:
    for name in manifests.kustomization("monitoring")["resources"]:
        assert (manifests.FOLDER / "monitoring" / name).is_file()
