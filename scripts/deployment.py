"""Checks of the files in `deploy/` for `scripts.checks`."""

import re
from collections.abc import Iterator
from xml.etree import ElementTree as ET

import click
import yaml

from exporter.cli import main as program
from exporter.config import PROGRAM
from scripts.project import ROOT, files, read

DEPLOY = ROOT / "deploy"


def problems() -> Iterator[str]:
    """Yield what is wrong with the files that run the program."""
    for check in (_names, _unit, _containers, _image, _role):
        yield from check()


def _names() -> Iterator[str]:
    """Look for flags and variables that do not exist, and for what allows everything."""
    options = [option for option in program.commands["run"].params if isinstance(option, click.Option)]
    flags = {flag for option in options for flag in option.opts}
    variables = {str(option.envvar) for option in options}
    for path in files(
        *("deploy/systemd/*.service", "deploy/docker/*", "docs/install.md", "deploy/windows/*.xml"),
        "deploy/helm/**/templates/*.yaml",
    ):
        text = path.read_text()
        named = set(re.findall(r"--(?:config|imds|instance|log|notify|poll|state|web)\.[a-z.-]*[a-z]", text))
        unknown = named - flags | set(re.findall(r"SCHEDULED_EVENTS_[A-Z_]+", text)) - variables
        yield from (f"{path.relative_to(ROOT)}: {one} is not known to the program" for one in unknown)
    for path in files("examples/**/*.yml", "deploy/helm/**/templates/*.yaml"):
        if "service-account-token" in path.read_text():
            yield f"{path.relative_to(ROOT)}: a token that never ends"
        if re.search(r"(resources|verbs|apiGroups):.*\*", path.read_text()):
            yield f"{path.relative_to(ROOT)}: a wildcard"
    service = ET.parse(DEPLOY / "windows" / f"{PROGRAM}.xml").getroot()  # noqa: S314  # a file of ours
    if service.findtext("serviceaccount/user") != "LocalService":
        yield "deploy/windows: the service has more rights than LocalService"


def _unit() -> Iterator[str]:
    """Compare the systemd unit with its privileges and limits."""
    service = read(f"deploy/systemd/{PROGRAM}.service").partition("[Service]\n")[2].partition("\n[")[0]
    found = dict(line.split("=", 1) for line in service.splitlines() if re.match(r"[A-Z]\w*=", line))
    closed = ("DynamicUser", "NoNewPrivileges", "PrivateDevices", "MemoryDenyWriteExecute")
    wanted = dict.fromkeys(closed, "yes") | dict.fromkeys(
        ("CapabilityBoundingSet", "AmbientCapabilities"), ""
    )
    wanted |= {"StateDirectory": PROGRAM, "StateDirectoryMode": "0700", "ProtectSystem": "strict"}
    wanted |= {"MemoryMax": "512M", "WatchdogSec": "30s", "Restart": "on-failure"}
    wanted |= {"RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX"}
    yield from (
        f"systemd unit: {key} is not {value!r}" for key, value in wanted.items() if found[key] != value
    )
    if found["ExecStart"].split()[1] != "run":
        yield "systemd unit: the command is not run"


def _containers() -> Iterator[str]:
    """Look whether Compose, Quadlet and docker run keep the state, drop privileges, and survive a reboot."""
    compose = yaml.safe_load(read("deploy/docker/compose.yml"))["services"][PROGRAM]
    quadlet = read(f"deploy/docker/{PROGRAM}.container")
    command = read("docs/install.md").partition("docker run")[2].partition("```")[0]
    state, run = f":/var/lib/{PROGRAM}", ["run", f"--config.file=/etc/{PROGRAM}/exporter.yml"]
    is_closed = compose["read_only"] is True and compose["cap_drop"] == ["ALL"]
    is_kept = any(volume.endswith(state) for volume in compose["volumes"])
    if not is_closed or not is_kept or (compose["restart"], compose["command"]) != ("unless-stopped", run):
        yield "deploy/docker/compose.yml: privileges, state, restart or command differ"
    for word in (state, "--restart unless-stopped", "--read-only", "--cap-drop ALL"):
        if word not in command:
            yield f"docs/install.md: docker run lacks {word}"
    for word in (state, "ReadOnly=true", "DropCapability=all", "WantedBy=multi-user.target", " ".join(run)):
        if word not in quadlet:
            yield f"deploy/docker/{PROGRAM}.container: lacks {word}"


def _image() -> Iterator[str]:
    """Check that the image copies what is in its context, is pinned, and does not run as root."""
    text = read("deploy/docker/Dockerfile")
    kept = read("deploy/docker/Dockerfile.dockerignore").splitlines()
    for source in " ".join(re.findall(r"(?m)^COPY (?!--)(.+) \S+$", text)).split():
        if not (ROOT / source).exists() or f"!{source.rstrip('/')}" not in kept:
            yield f"deploy/docker/Dockerfile: {source} is not in the build's context"
    if not re.search(r"(?m)^USER [1-9]\d*:\d+$", text):
        yield "deploy/docker/Dockerfile: the user is root"
    for base in re.findall(r"(?m)^ARG [A-Z]+=(\S+/\S+)$", text):
        if not re.search(r"@sha256:[0-9a-f]{64}$", base):
            yield f"deploy/docker/Dockerfile: {base} is not pinned"


def _role() -> Iterator[str]:
    """Look for variables of the Ansible role that have no default, are not used or not documented."""
    folder = next((DEPLOY / "ansible").rglob("defaults")).parent
    defaults = set(yaml.safe_load((folder / "defaults" / "main.yml").read_text()))
    used = "".join(path.read_text() for path in folder.rglob("*/*.yml") if path.parent.name != "defaults")
    name = r"(?<!_)azure_scheduled_events_exporter_\w+"
    for text in (used, read("docs/rollout.md")):
        yield from (f"role: {one} has no default" for one in set(re.findall(name, text)) - defaults)
        yield from (f"role: {one} is not used, or not documented" for one in defaults if one not in text)
