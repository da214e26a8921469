"""The unit and the image of `deploy/`: their paths and flags exist, and they expose no secrets."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from exporter.cli import main

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
UNIT = DEPLOY / "systemd" / "azure-scheduled-events-exporter.service"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
QUADLET = DEPLOY / "docker" / "azure-scheduled-events-exporter.container"
README = DEPLOY / "README.md"
NAME = "azure-scheduled-events-exporter"
PORT = 9843


def directives() -> dict[str, str]:
    """Return the settings of the unit's service; of one that is there twice the last."""
    service = UNIT.read_text().partition("[Service]\n")[2].partition("\n[")[0].splitlines()
    return {
        key: value for key, _, value in (line.partition("=") for line in service if line[:1] != "#") if key
    }


@pytest.mark.parametrize(
    "path",
    [UNIT, DOCKERFILE, DOCKERFILE.with_name("compose.yml"), QUADLET, README],
    ids=lambda path: path.name,
)
def test_flags_and_variables_exist(path: Path) -> None:
    """Every flag and variable of the program that is named is one of `run`."""
    run = main.commands["run"]
    options = [option for option in run.params if isinstance(option, click.Option)]
    flags = {flag for option in options for flag in option.opts}
    variables = {str(option.envvar) for option in options}
    text = path.read_text()
    assert set(re.findall(r"--(?:config|imds|instance|log|notify|poll|state|web)[a-z.-]*", text)) <= flags
    assert set(re.findall(r"SCHEDULED_EVENTS_[A-Z_]+", text)) <= variables


def test_the_unit_leaves_no_core() -> None:
    """A core of the exporter would have the secrets of its memory."""
    assert directives()["LimitCORE"] == "0"


def test_nothing_here_lasts_for_ever_or_allows_everything() -> None:
    """No token in a Secret, which never ends; no wildcard for a resource, a verb or a group."""
    root = DEPLOY.parent
    files = [*(root / "examples").rglob("*.yml"), *(DEPLOY / "helm").rglob("templates/*.yaml")]
    assert len(files) > 10
    for file in files:
        text = file.read_text()
        assert "service-account-token" not in text, file
        assert not re.search(r"(resources|verbs|apiGroups):.*\*", text), file


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


def test_the_unit_gives_no_privilege() -> None:
    """It has its own user, no capabilities, and can write only to its own state directory."""
    found = directives()
    assert found["ExecStart"].split()[1] == "run"
    assert found["StateDirectory"] == NAME
    assert found["StateDirectoryMode"] == "0700"
    assert (found["CapabilityBoundingSet"], found["AmbientCapabilities"]) == ("", "")
    assert found["ProtectSystem"] == "strict"
    for name in ("DynamicUser", "NoNewPrivileges", "PrivateDevices", "MemoryDenyWriteExecute"):
        assert found[name] == "yes"
    assert found["RestrictAddressFamilies"] == "AF_INET AF_INET6 AF_UNIX"


def test_the_image_is_built_of_what_there_is() -> None:
    """What is copied exists and is not kept out of the build; packages are hashed; the user is not root."""
    text = DOCKERFILE.read_text()
    root = DEPLOY.parent
    copied = [
        source.rstrip("/")
        for sources in re.findall(r"(?m)^COPY (?!--)(.+) \S+$", text)
        for source in sources.split()
    ]
    kept = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().splitlines()
    assert {"exporter", "alerts", "dashboards", "deploy", "README.md"} <= set(copied)
    assert all((root / source).exists() and f"!{source}" in kept for source in copied)
    assert "--require-hashes" in text
    (user,) = re.findall(r"(?m)^USER (\d+):\d+$", text)
    assert int(user) > 0
    assert f"EXPOSE {PORT}" in text
    assert re.search(r"(?m)^ARG BASE=\S+@sha256:[0-9a-f]{64}$", text)


def test_every_way_to_run_the_image_agrees() -> None:
    """Compose, Quadlet and the README's command keep the state and no privilege, and survive a reboot."""
    compose = yaml.safe_load((DEPLOY / "docker" / "compose.yml").read_text())["services"][NAME]
    quadlet = QUADLET.read_text()
    command = README.read_text().partition("docker run")[2].partition("```")[0]
    state = f":/var/lib/{NAME}"
    assert compose["read_only"] is True
    assert compose["cap_drop"] == ["ALL"]
    assert compose["restart"] == "unless-stopped"
    assert any(volume.endswith(state) for volume in compose["volumes"])
    assert "--restart unless-stopped" in command
    assert "--read-only" in command
    assert "--cap-drop ALL" in command
    assert state in command
    assert {"ReadOnly=true", "DropCapability=all", "WantedBy=multi-user.target"} <= set(quadlet.split("\n"))
    assert state in quadlet
    for one in (compose["command"], re.findall(r"(?m)^Exec=(.*)$", quadlet)[0].split()):
        assert one == ["run", f"--config.file=/etc/{NAME}/exporter.yml"]


def test_files_that_are_named_exist() -> None:
    """Links, and paths of this project in commands, lead somewhere."""
    text = README.read_text()
    links = re.findall(r"\]\((?!https:)([^)#]+)\)", text)
    paths = re.findall(r"(?:deploy|requirements)/[\w./-]+\w", text)
    assert links
    assert paths
    assert all((DEPLOY / link).exists() for link in links)
    assert all((DEPLOY.parent / path).exists() for path in paths)
