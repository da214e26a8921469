"""The Helm chart, by its values and by what Helm made of it: ``make renderings`` renews that."""

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from exporter import __version__
from exporter.cli import main
from exporter.config import Overrides
from exporter.notifications import planning
from exporter.web.app import WebApp
from scripts.renderings import CHART, KUBERNETES, RENDERINGS, heading
from tests.web.support import site, snapshot

VALUES = sorted(RENDERINGS.glob("*.values.yaml"))
# No schema of Kubernetes covers what others define.
FOREIGN = {"PodMonitor", "PrometheusRule"}


def rendering(values: Path) -> Path:
    """Return the rendering that belongs to a file of values."""
    return values.with_name(values.name.replace(".values", ""))


def documents(name: str) -> list[dict[str, Any]]:
    """Return all objects of a rendering."""
    return [one for one in yaml.safe_load_all((RENDERINGS / f"{name}.yaml").read_text()) if one]


def only(name: str, kind: str) -> dict[str, Any]:
    """Return the only object of a kind in a rendering, but for those of Windows nodes."""
    named = (one for one in documents(name) if not one["metadata"]["name"].endswith("-windows"))
    (found,) = (one for one in named if one["kind"] == kind)
    return found


def pod(name: str) -> dict[str, Any]:
    """Return the pod of the DaemonSet in a rendering."""
    found: dict[str, Any] = only(name, "DaemonSet")["spec"]["template"]["spec"]
    return found


each_values = pytest.mark.parametrize("values", VALUES, ids=lambda path: path.name.split(".")[0])
each = pytest.mark.parametrize("name", [rendering(values).stem for values in VALUES])


def test_the_chart_has_the_shipped_rules_and_dashboards() -> None:
    """Its files are links to them: a copy of the text of a link would be rendered as it is."""
    sources = {"rules.yml": Path("alerts/scheduled-events.rules.yml")}
    sources |= {path.name: path for path in Path("dashboards").glob("*.json")}
    found = {path.name: path.read_text() for path in (CHART / "files").iterdir()}
    assert found == {name: path.read_text() for name, path in sources.items()}


@each_values
def test_renderings_are_of_this_chart(values: Path) -> None:
    """Whoever changes the chart runs make renderings."""
    assert rendering(values).read_text().startswith(heading(values))


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
    assert set(schema["properties"]) - {"global"} == set(defaults)


@each
def test_kubernetes_accepts_it(name: str) -> None:
    """Every object is valid by the schemas of the oldest Kubernetes that the chart allows."""
    import kubernetes_validate

    found = [one for one in documents(name) if one["kind"] not in FOREIGN]
    assert len(found) > 3
    for one in found:
        kubernetes_validate.validate(one, KUBERNETES.rpartition(".")[0], strict=True)


def test_versions_agree() -> None:
    """Chart and image have the version of the program."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


def test_the_pod_has_no_privilege() -> None:
    """Not root, no capability, a root that is read-only, no account of the cluster."""
    found = pod("default")
    (container,) = found["containers"]
    assert found["securityContext"]["runAsNonRoot"] is True
    assert found["securityContext"]["runAsUser"] > 0
    assert found["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert found["automountServiceAccountToken"] is False
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


def test_every_variable_exists() -> None:
    """A variable of the program that a template sets is one of `run`."""
    options = [option for option in main.commands["run"].params if isinstance(option, click.Option)]
    text = "".join(path.read_text() for path in CHART.glob("templates/*.yaml"))
    assert set(re.findall(r"SCHEDULED_EVENTS_[A-Z_]+", text)) <= {str(option.envvar) for option in options}


@each
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


def test_the_monitor_finds_the_pods() -> None:
    """By their labels and their port, under the job that rules and dashboards take, within Azure's limits."""
    monitor = only("everything", "PodMonitor")
    labels = only("everything", "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert labels[monitor["spec"]["jobLabel"]] == "azure-scheduled-events-exporter"
    assert [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]] == ["metrics"]
    assert monitor["spec"]["labelLimit"] == 63


def test_windows_nodes() -> None:
    """They have their own DaemonSet and configuration, which match and need no privileges."""
    found = {one["kind"]: one for one in documents("windows") if one["metadata"]["name"].endswith("-windows")}
    template = found["DaemonSet"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert template["spec"]["nodeSelector"] == {"kubernetes.io/os": "windows"}
    assert template["spec"]["securityContext"]["windowsOptions"] == {"runAsUserName": "ContainerUser"}
    assert (
        found["DaemonSet"]["spec"]["selector"]["matchLabels"].items()
        <= template["metadata"]["labels"].items()
    )
    linux = only("windows", "DaemonSet")["spec"]["selector"]["matchLabels"]
    assert not linux.items() <= template["metadata"]["labels"].items()
    flags = dict(argument.split("=") for argument in container["args"][1:])
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    folder, _, file = flags["--config.file"].rpartition("/")
    assert mounts[folder] == "config"
    assert list(found["ConfigMap"]["data"]) == [file]
    assert mounts[flags["--state.directory"].rpartition("/")[0]] == "state"
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    assert volumes["config"]["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]
