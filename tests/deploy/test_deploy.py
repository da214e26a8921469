"""The unit, the DaemonSet and the Dockerfile of `deploy/`: they name what there is, and give away nothing."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from exporter.cli import main
from exporter.config import Overrides
from exporter.notifications import planning
from exporter.web.app import _Application
from tests.web.support import site, snapshot

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
UNIT = DEPLOY / "systemd" / "azure-scheduled-events-exporter.service"
DAEMON_SET = DEPLOY / "kubernetes" / "daemonset.yml"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
README = DEPLOY / "README.md"
NAME = "azure-scheduled-events-exporter"
PORT = 9843


def directives() -> dict[str, str]:
    """Return the settings of the unit's service; of one that is there twice the last."""
    service = UNIT.read_text().partition("[Service]\n")[2].partition("\n[")[0].splitlines()
    return {
        key: value for key, _, value in (line.partition("=") for line in service if line[:1] != "#") if key
    }


def documents() -> list[dict[str, Any]]:
    """Return what the manifest holds."""
    return list(yaml.safe_load_all(DAEMON_SET.read_text()))


def pod() -> dict[str, Any]:
    """Return the DaemonSet's pod."""
    found: dict[str, Any] = documents()[1]["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("path", [UNIT, DAEMON_SET, DOCKERFILE, README], ids=lambda path: path.name)
def test_flags_and_variables_exist(path: Path) -> None:
    """Every flag and variable of the program that is named is one of `run`."""
    run = main.commands["run"]
    options = [option for option in run.params if isinstance(option, click.Option)]
    flags = {flag for option in options for flag in option.opts}
    variables = {str(option.envvar) for option in options}
    text = path.read_text()
    assert set(re.findall(r"--(?:config|imds|instance|log|notify|poll|state|web)[a-z.-]*", text)) <= flags
    assert set(re.findall(r"SCHEDULED_EVENTS_[A-Z_]+", text)) <= variables


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """Where systemd is installed it finds no mistake in the unit, and calls it closed."""
    program = shutil.which("systemd-analyze")
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/scheduled-events/bin/" + NAME, sys.executable))
    commands = (["verify", str(copy)], ["security", "--offline=yes", "--threshold=20", str(copy)])
    for command in commands if program else ():
        done = subprocess.run([str(program), *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert command[0] == "security" or done.stderr == ""


def test_the_unit_gives_no_privilege() -> None:
    """A user of its own, no capability, nothing to write to but the state, whose directory is its own."""
    found = directives()
    assert found["ExecStart"].split()[1] == "run"
    assert found["StateDirectory"] == NAME
    assert found["StateDirectoryMode"] == "0700"
    assert (found["CapabilityBoundingSet"], found["AmbientCapabilities"]) == ("", "")
    assert found["ProtectSystem"] == "strict"
    for name in ("DynamicUser", "NoNewPrivileges", "PrivateDevices", "MemoryDenyWriteExecute"):
        assert found[name] == "yes"
    assert found["RestrictAddressFamilies"] == "AF_INET AF_INET6 AF_UNIX"


def test_the_pod_has_no_privilege() -> None:
    """Not root, no capability, a root that is read-only, no account of the cluster."""
    found = pod()
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
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(found)


def test_the_pod_fits_together() -> None:
    """Volumes, labels, ports and probes name each other, and probed paths are routes."""
    config, daemon_set = documents()
    found = pod()
    (container,) = found["containers"]
    labels = daemon_set["spec"]["template"]["metadata"]["labels"]
    assert daemon_set["spec"]["selector"]["matchLabels"] == labels == {"app.kubernetes.io/name": NAME}
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in found["volumes"]
    }
    assert container["ports"] == [{"name": "metrics", "containerPort": PORT}]
    routes = _Application(site(snapshot()))._routes
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in routes
        assert container[probe]["httpGet"]["port"] == "metrics"
    flags = dict(arg.split("=") for arg in container["args"][1:])
    folder, _, file = flags["--config.file"].rpartition("/")
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert mounts[folder] == "config"
    assert list(config["data"]) == [file]
    assert mounts[flags["--state.directory"].rpartition("/")[0]] == "state"


def test_the_secret_is_closed_and_the_configuration_good(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The ConfigMap's file is valid, and nothing is warned of with the modes that the pod gives."""
    modes = {volume["name"]: volume.get("secret", {}).get("defaultMode") for volume in pod()["volumes"]}
    assert modes["secrets"] == 0o440
    secret, file = tmp_path / "oncall", tmp_path / "exporter.yml"
    secret.write_text("json://host.example/token\n")
    secret.chmod(modes["secrets"])
    mounted = "/etc/azure-scheduled-events-exporter/secrets/oncall"
    text = documents()[0]["data"]["exporter.yml"]
    assert mounted in text
    file.write_text(text.replace(mounted, str(secret)))
    file.chmod(0o644)
    settings, _ = planning.load(file, Overrides(), (), {})
    assert [target.name for target in settings.notifications.targets] == ["oncall"]
    assert caplog.records == []


def test_the_monitor_in_the_comment_is_one() -> None:
    """Without its comment signs it is YAML, and finds the pods' port."""
    commented = DAEMON_SET.read_text().partition("#---\n")[2]
    monitor = yaml.safe_load(re.sub(r"(?m)^#", "", commented))
    assert monitor["kind"] == "PodMonitor"
    assert monitor["spec"]["selector"]["matchLabels"] == {"app.kubernetes.io/name": NAME}
    assert [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]] == ["metrics"]


def test_the_image_is_built_of_what_there_is() -> None:
    """What is copied exists and is not kept out of the build; packages are hashed; the user is not root."""
    text = DOCKERFILE.read_text()
    root = DEPLOY.parent
    copied = [
        source.rstrip("/") for source in re.findall(r"(?m)^COPY (\S+) \S+$", text) if source[:2] != "--"
    ]
    kept = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().splitlines()
    assert copied == ["requirements/runtime.txt", "exporter"]
    assert all((root / source).exists() and f"!{source}" in kept for source in copied)
    assert "--require-hashes" in text
    (user,) = re.findall(r"(?m)^USER (\d+):\d+$", text)
    assert int(user) == pod()["securityContext"]["runAsUser"] > 0
    assert f"EXPOSE {PORT}" in text
    assert len(set(re.findall(r"python:?(\d\.\d+)", text))) == 1


def test_files_that_are_named_exist() -> None:
    """Links, and paths of this project in commands, lead somewhere."""
    text = README.read_text()
    links = re.findall(r"\]\(([^)#]+)\)", text)
    paths = re.findall(r"(?:deploy|requirements)/[\w./-]+\w", text)
    assert len(links) + len(paths) >= 4
    assert all((DEPLOY / link).exists() for link in links)
    assert all((DEPLOY.parent / path).exists() for path in paths)
