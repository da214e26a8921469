"""The Helm chart, by its values and by what Helm made of it: ``make renderings`` renews that."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.cli import main
from exporter.config import Overrides
from exporter.notifications import planning
from exporter.web.app import WebApp
from scripts.renderings import CHART, KUBERNETES, VALUES, rendering
from tests.web.support import site, snapshot

# No schema of Kubernetes covers what others define.
FOREIGN = {"PodMonitor", "PrometheusRule", "ServiceMonitor"}


def documents(name: str) -> list[dict[str, Any]]:
    (path,) = (path for values in VALUES if (path := rendering(values)).stem == name)
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def only(name: str, kind: str) -> dict[str, Any]:
    """Return the only object of a kind in a rendering, but for those of Windows nodes."""
    named = (one for one in documents(name) if not one["metadata"]["name"].endswith("-windows"))
    (found,) = (one for one in named if one["kind"] == kind)
    return found


def pod(name: str) -> dict[str, Any]:
    found: dict[str, Any] = only(name, "DaemonSet")["spec"]["template"]["spec"]
    return found


each_values = pytest.mark.parametrize("values", VALUES, ids=lambda path: path.name.split(".")[0])
each = pytest.mark.parametrize("name", [rendering(values).stem for values in VALUES])


@each_values
def test_values_keep_to_the_schema(values: Path) -> None:
    """The defaults and the values of the renderings are valid, unknown values are not."""
    # Its import takes seconds, in each process of the tests.
    import jsonschema

    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    given = yaml.safe_load(values.read_text())
    for one in (defaults, given):
        jsonschema.validate(one, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(given | {"no_such_value": 1}, schema)
    assert set(schema["properties"]) == set(defaults)


@each
def test_kubernetes_accepts_it(name: str) -> None:
    """Every object is valid by the schemas of the oldest Kubernetes that the chart allows."""
    import kubernetes_validate

    found = [one for one in documents(name) if one["kind"] not in FOREIGN]
    assert len(found) > 3
    for one in found:
        kubernetes_validate.validate(one, KUBERNETES.rpartition(".")[0], strict=True)


def test_the_pod_has_no_privilege() -> None:
    """Not root, no capability, a root that is read-only; without conditions and drain no token either."""
    found = pod("default")
    (container,) = found["containers"]
    assert found["securityContext"]["runAsNonRoot"] is True
    assert found["securityContext"]["runAsUser"] > 0
    assert found["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert found["automountServiceAccountToken"] is True
    assert pod("windows")["automountServiceAccountToken"] is False
    assert not {"ClusterRole", "Role"} & {one["kind"] for one in documents("windows")}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(found)


@each
def test_the_pod_fits_together(name: str) -> None:
    """Flags exist; volumes, labels, ports and probes name each other; probed paths are routes."""
    daemon_set, found = only(name, "DaemonSet"), pod(name)
    (container,) = found["containers"]
    labels = daemon_set["spec"]["template"]["metadata"]["labels"]
    selector = daemon_set["spec"]["selector"]["matchLabels"]
    assert selector.items() <= labels.items()
    assert only(name, "Service")["spec"]["selector"].items() <= selector.items()
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert set(mounts.values()) == {volume["name"] for volume in found["volumes"]}
    flags = dict(argument.split("=") for argument in container["args"][1:] if "=" in argument)
    known = {flag for option in main.commands["run"].params for flag in option.opts}
    assert {argument.partition("=")[0] for argument in container["args"][1:]} <= known
    folder, _, file = flags["--config.file"].rpartition("/")
    assert mounts[folder] == "config"
    assert list(only(name, "ConfigMap")["data"]) == [file]
    assert mounts[flags["--state.directory"].rpartition("/")[0]] == "state"
    (port,) = container["ports"]
    assert flags["--web.listen-address"] == f":{port['containerPort']}"
    for probe in (container["livenessProbe"], container["readinessProbe"]):
        way = probe.get("httpGet", probe.get("tcpSocket"))
        assert way["port"] == port["name"]
        assert way.get("path", "/") in WebApp(site(snapshot())).routes


@each
@pytest.mark.usefixtures("checks_in_process")
def test_the_configuration_is_good(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is valid, and with the modes that the pod gives to secrets nothing is warned of."""
    volumes = {volume["name"]: volume for volume in pod(name)["volumes"]}
    secret, file = tmp_path / "oncall", tmp_path / "exporter.yml"
    secret.write_text("json://host.example/token\n")
    secret.chmod(volumes.get("secrets", {}).get("secret", {}).get("defaultMode", 0o440))
    text: str = only(name, "ConfigMap")["data"]["exporter.yml"]
    file.write_text(text.replace("/etc/azure-scheduled-events-exporter/secrets/oncall", str(secret)))
    file.chmod(0o644)
    planning.load(file, Overrides(), (), {})
    assert caplog.records == []


@pytest.mark.parametrize(
    ("kind", "key"), [("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")]
)
def test_the_monitors_find_the_pods(kind: str, key: str) -> None:
    """By labels and port, under the job that rules and dashboards take; series do not name the pod."""
    monitor = only("everything", kind)
    labels = only("everything", "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert labels[monitor["spec"]["jobLabel"]] == "azure-scheduled-events-exporter"
    (endpoint,) = monitor["spec"][key]
    assert endpoint["port"] == "metrics"
    assert {"action": "labeldrop", "regex": "pod|container|endpoint|service"} in endpoint["relabelings"]
    assert ("labelLimit" in monitor["spec"]) is (kind == "PodMonitor")


def rules(name: str) -> set[tuple[str, str]]:
    """Return the resources and verbs that a rendering allows in the whole cluster."""
    found = only(name, "ClusterRole")["rules"]
    return {(resource, verb) for rule in found for resource in rule["resources"] for verb in rule["verbs"]}


def test_what_is_allowed() -> None:
    """For conditions and a cordon the Node, and more only where Nodes are drained."""
    conditions = {("nodes", "get"), ("nodes", "patch"), ("nodes/status", "patch")}
    assert rules("default") == rules("everything") == conditions
    drain = {("pods", "list"), ("pods/eviction", "create"), ("events", "create")}
    assert rules("manifests") == conditions | drain
    assert only("default", "Role")["metadata"]["namespace"] == "default"


def test_the_network_policy_lets_the_api_server_through() -> None:
    """At the given address and port."""
    egress = only("everything", "NetworkPolicy")["spec"]["egress"]
    assert {"ports": [{"port": 443}], "to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]} in egress


def test_windows_nodes() -> None:
    """They have their own DaemonSet, which says its system, matches and needs no privileges."""
    found = next(
        one
        for one in documents("windows")
        if one["kind"] == "DaemonSet" and one["metadata"]["name"].endswith("-windows")
    )
    template = found["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert template["spec"]["os"] == {"name": "windows"}
    assert template["spec"]["nodeSelector"] == {"kubernetes.io/os": "windows"}
    assert template["spec"]["securityContext"] == {"windowsOptions": {"runAsUserName": "ContainerUser"}}
    assert "securityContext" not in container
    labels = template["metadata"]["labels"]
    assert found["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert not only("windows", "DaemonSet")["spec"]["selector"]["matchLabels"].items() <= labels.items()
    flags = dict(argument.split("=") for argument in container["args"][1:])
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    folder, _, file = flags["--config.file"].rpartition("/")
    assert mounts[folder] == "config"
    assert list(only("windows", "ConfigMap")["data"]) == [file]
    assert mounts[flags["--state.directory"].rpartition("/")[0]] == "state"
