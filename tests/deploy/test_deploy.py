"""The unit, the image and the custom data of `deploy/`: what they run, and with which rights."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from exporter.config import Overrides
from exporter.notifications import planning

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
UNIT = DEPLOY / "systemd" / "azure-scheduled-events-exporter.service"
QUADLET = DEPLOY / "docker" / "azure-scheduled-events-exporter.container"
README = DEPLOY / "README.md"
NAME = "azure-scheduled-events-exporter"


def directives() -> dict[str, str]:
    """Return the settings of the unit's service; of one that is there twice the last."""
    service = UNIT.read_text().partition("[Service]\n")[2].partition("\n[")[0].splitlines()
    return {
        key: value for key, _, value in (line.partition("=") for line in service if line[:1] != "#") if key
    }


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


def test_the_unit_ends_what_grows_or_hangs() -> None:
    """Its memory has a backstop, and systemd starts it again if it hangs for half a minute."""
    found = directives()
    assert (found["MemoryMax"], found["WatchdogSec"], found["Restart"]) == ("512M", "30s", "on-failure")


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


def test_the_configuration_in_the_custom_data_is_good(tmp_path: Path) -> None:
    """It is valid, and lies where the unit reads it."""
    text = (DEPLOY / "cloud-init" / "azure-scheduled-events-exporter.yml").read_text()
    assert text.startswith("#cloud-config\n")
    (file,) = yaml.safe_load(text)["write_files"]
    assert f"--config.file {file['path']}" in UNIT.read_text()
    written = tmp_path / "exporter.yml"
    written.write_text(file["content"])
    written.chmod(int(file["permissions"], 8))
    planning.load(written, Overrides(), (), {})
