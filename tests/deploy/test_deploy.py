"""Unit, custom data and chart for the programs that read them.

`scripts.chart` checks the rest of the chart.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from scripts.chart import only
from scripts.renderings import VALUES, rendering
from tests.configs import checked
from tests.web.support import application

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
UNIT = DEPLOY / "systemd" / "azure-scheduled-events-exporter.service"
NAME = "azure-scheduled-events-exporter"


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """It finds no mistake in the unit, and calls it closed."""
    program = shutil.which("systemd-analyze")
    assert program, "systemd is not installed; make test installs it"
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/scheduled-events/bin/" + NAME, sys.executable))
    commands = (["verify", str(copy)], ["security", "--offline=yes", "--threshold=20", str(copy)])
    for command in commands:
        done = subprocess.run([program, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert command[0] == "security" or done.stderr == ""


def test_the_configuration_in_the_custom_data_is_good(tmp_path: Path) -> None:
    """It is valid, and lies where the unit reads it."""
    text = (DEPLOY / "cloud-init" / "azure-scheduled-events-exporter.yml").read_text()
    assert text.startswith("#cloud-config\n")
    (file,) = yaml.safe_load(text)["write_files"]
    assert f"--config.file {file['path']}" in UNIT.read_text()
    written = tmp_path / "exporter.yml"
    written.write_text(file["content"])
    written.chmod(int(file["permissions"], 8))
    checked(written)


each = pytest.mark.parametrize("name", [rendering(values).stem for values in VALUES])


def repeated(node: yaml.Node) -> list[str]:
    """Return the keys of maps, and the identities of entries in lists, that are there twice."""
    names: list[str] = []
    below: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        names = [key.value for key, _ in node.value]
        below = [value for _, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        below = node.value
        maps = [one.value for one in below if isinstance(one, yaml.MappingNode)]
        entries = [{key.value: value.value for key, value in pairs} for pairs in maps]
        names = [str(entry.get("mountPath") or entry["name"]) for entry in entries if "name" in entry]
    twice = [name for name in set(names) if names.count(name) > 1]
    return twice + [name for one in below for name in repeated(one)]


@each
def test_nothing_is_named_twice(name: str) -> None:
    """Server-side apply and Helm 4 refuse a key or an entry that is there twice."""
    (values,) = (values for values in VALUES if rendering(values).stem == name)
    found = [*yaml.compose_all(rendering(values).read_text(), yaml.SafeLoader)]
    assert [repeated(one) for one in found] == [[]] * len(found)


def test_what_the_user_names_wins() -> None:
    """Whatever the chart names by itself a user may set, but for the labels that select the pods."""
    (file,) = (values for values in VALUES if values.stem == "given.values")
    given = yaml.safe_load(file.read_text())
    found = only("given", "DaemonSet")
    selector, template = found["spec"]["selector"]["matchLabels"], found["spec"]["template"]
    pod = template["spec"]
    (container,) = pod["containers"]
    assert template["metadata"]["annotations"] == given["podAnnotations"]
    assert template["metadata"]["labels"] == given["commonLabels"] | given["podLabels"] | selector
    assert found["metadata"]["labels"] == given["commonLabels"] | {
        key: value for key, value in selector.items() if key in given["commonLabels"]
    }
    assert "theirs" not in selector.values()
    monitor = given["prometheus"]["podMonitor"]
    assert monitor["labels"].items() <= only("given", "PodMonitor")["metadata"]["labels"].items()
    assert pod["nodeSelector"] == given["nodeSelector"]
    assert pod["initContainers"] == given["initContainers"]
    assert pod["volumes"] == given["extraVolumes"]
    assert container["volumeMounts"] == given["extraVolumeMounts"]
    assert container["env"] == given["extraEnv"]
    assert container["readinessProbe"].items() >= given["readinessProbe"].items()
    # What is not given stays.
    live = container["livenessProbe"]
    assert live["httpGet"] == {"path": "/-/healthy", "port": "metrics", "scheme": "HTTPS"}
    assert live["periodSeconds"] == 10
    secrets = [{"name": "registry"}, {"name": "other"}]
    assert pod["imagePullSecrets"] == only("given", "Pod")["spec"]["imagePullSecrets"] == secrets


@each
def test_the_probed_paths_are_routes(name: str) -> None:
    """A probe of a path that does not exist would end every pod."""
    (container,) = only(name, "DaemonSet")["spec"]["template"]["spec"]["containers"]
    probes = (container[f"{kind}Probe"].get("httpGet", {}) for kind in ("liveness", "readiness"))
    assert {probe.get("path", "/") for probe in probes} <= application().routes.keys()


@each
@pytest.mark.usefixtures("checks_in_process")
def test_the_configuration_is_good(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is valid, and with the modes that the pod gives to secrets nothing is warned of."""
    pod = only(name, "DaemonSet")["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    secret, file = tmp_path / "oncall", tmp_path / "exporter.yml"
    secret.write_text("json://host.example/token\n")
    secret.chmod(volumes.get("secrets", {}).get("secret", {}).get("defaultMode", 0o440))
    text: str = only(name, "ConfigMap")["data"]["exporter.yml"]
    file.write_text(text.replace("/etc/azure-scheduled-events-exporter/secrets/oncall", str(secret)))
    file.chmod(0o644)
    checked(file)
    assert caplog.records == []
