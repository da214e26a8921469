"""The Helm chart in the program; `scripts.chart` checks what Helm made of it."""

from pathlib import Path

import pytest

from exporter.config import Overrides
from exporter.notifications import planning
from scripts.chart import only
from scripts.renderings import VALUES, rendering
from tests.web.support import application

each = pytest.mark.parametrize("name", [rendering(values).stem for values in VALUES])


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
    planning.load(file, Overrides(), (), {})
    assert caplog.records == []
