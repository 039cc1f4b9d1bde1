"""Reads the manifests for Kubernetes in packaging/kubernetes. Each folder there is a kustomization."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.support.pair import Pair

FOLDER = Path(__file__).parents[2] / "packaging" / "kubernetes"
# The folders that contain pods and that users apply.
KINDS = ("shared", "standby", "verification")
ALERTS = FOLDER.parents[1] / "docs" / "monitoring" / "alerts.yml"
# The alert rules as a resource of the Prometheus Operator: written by `make reference`.
RULES = FOLDER / "monitoring" / "rules.yaml"
_RULES = """\
# Generated from docs/monitoring/alerts.yml by make reference.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: syncsvc
  labels:
    app.kubernetes.io/name: syncsvc
spec:
"""


def rules() -> str:
    """Return the alert rules of the documentation as YAML for the Prometheus Operator."""
    _, _, groups = ALERTS.read_text().partition("\ngroups:\n")
    lines = ("groups:\n" + groups).splitlines()
    return _RULES + "".join(f"  {line}".rstrip() + "\n" for line in lines)


def kustomization(kind: str) -> dict[str, Any]:
    return _read(FOLDER / kind / "kustomization.yaml")


def resources(kind: str) -> Iterator[dict[str, Any]]:
    """Yield the resources of the kustomization `kind`, and those of the kustomizations that it includes."""
    folder = FOLDER / kind
    for name in kustomization(kind)["resources"]:
        path = (folder / name).resolve()
        if path.is_dir():
            yield from resources(path.name)
        else:
            yield _read(path)


def pod(kind: str) -> dict[str, Any]:
    """Return the specification of the pods of the kustomization `kind`."""
    (found,) = (each for each in resources(kind) if "template" in each.get("spec", {}))
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def container(kind: str) -> dict[str, Any]:
    (found,) = pod(kind)["containers"]
    return dict(found)


def files(kind: str) -> dict[str, Path]:
    """Return the files that a container of the kustomization `kind` mounts, by their paths in the container."""
    made = {
        each["name"]: each["files"]
        for name in ("secretGenerator", "configMapGenerator")
        for each in kustomization(kind).get(name, ())
    }
    volumes = {each["name"]: _origin(each) for each in pod(kind)["volumes"]}
    return {
        f"{mount['mountPath']}/{name}": FOLDER / kind / name
        for mount in container(kind)["volumeMounts"]
        for name in made.get(volumes[mount["name"]] or "", ())
    }


def filled(file: Path, pair: Pair, state: str) -> str:
    """Return the text of a file, with the connection strings of `pair` and the desired state `state`."""
    return (
        file.read_text()
        .replace(_uri("source", "a"), pair.source.uri)
        .replace(_uri("destination", "b"), pair.destination.uri)
        .replace("desiredState: running", f"desiredState: {state}")
    )


def _uri(name: str, replica_set: str) -> str:
    return f"mongodb://sync:PASSWORD@{name}.example:27017/?replicaSet={replica_set}"


def _origin(volume: dict[str, Any]) -> str | None:
    """Return the name of the secret or the config map of a volume; None if it has another origin."""
    if "secret" in volume:
        return str(volume["secret"]["secretName"])
    return str(volume["configMap"]["name"]) if "configMap" in volume else None


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(path.read_text())
    return content
