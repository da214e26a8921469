"""Every command that README.md and docs/ show is run, beside a simulated Azure and an exporter."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporter.simulator import Simulator, SimulatorServer
from tests.docs.pages import ROOT, Block, blocks
from tests.end_to_end.program import eventually, exporter, free_port, get
from tests.receivers import http_receiver

NAME = "azure-scheduled-events-exporter"
# The event that the documentation shows.
EVENT = "5EF2334A-50C6-4550-B556-FBB54014D990"
# What cannot run here, and why. In its place a program that does nothing is run with the same arguments.
NOT_HERE = {
    "ansible-playbook": "is not installed for the tests",
    "apt": "needs a package index",
    "az": "needs a subscription of Azure",
    "cloud-init": "is not installed for the tests",
    "dnf": "needs a package index",
    "docker": "is not installed for the tests",
    "helm": "needs a cluster",
    "kubectl": "needs a cluster",
    "make": "sets up a checkout",
    "pip": "needs a package index",
    "prometheus-alertmanager": "goes on until it is stopped",
    "systemctl": "needs systemd",
    "tar": "needs a package that was built",
    "userdel": "needs a user of the service",
}
# Directories of the machine that commands write to; they are below the stage here.
_OURS = ("/opt/", "/etc/", "/var/")
_MADE = (
    "opt/scheduled-events/bin",
    "etc/systemd/system",
    f"etc/{NAME}",
    f"var/lib/{NAME}",
    f"var/lib/private/{NAME}",
    "var/tmp",
)
# Runs the program; a command that goes on until it is stopped is stopped once it serves.
_PROGRAM = """#!{python}
import subprocess, sys
command = [{script!r}, *sys.argv[1:]]
if not set(sys.argv[1:2]) & {{"run", "simulate", "demo"}}:
    sys.exit(subprocess.run(command).returncode)
with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
    for line in process.stdout:
        print(line, end="")
        if "http://127.0.0.1:" in line:
            process.terminate()
sys.exit(process.returncode)
"""


@dataclass
class Stage:
    """The directory in which commands run, and the services that they use."""

    folder: Path
    simulator: Simulator
    imds: str
    port: int
    target: str

    def run(self, block: Block) -> "subprocess.CompletedProcess[str]":
        """Run a block as a script, each of whose commands has to succeed, and answer questions with yes."""
        return subprocess.run(
            ["bash", "-e", "-u", "-o", "pipefail", "-c", self._here(block.text)],
            cwd=self.folder,
            env=self._environ(),
            input="y\n",
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def _here(self, text: str) -> str:
        """Return the commands with the addresses, directories and the event of this stage."""
        places = {
            "slack://TOKEN_A/TOKEN_B/TOKEN_C": self.target,
            "localhost:9843": f"127.0.0.1:{self.port}",
            "http://127.0.0.1:9844": self.imds,
            "127.0.0.1:9845": "127.0.0.1:0",
            "--tmpfs /tmp": f"--tmpfs {self.folder}",
            "http://169.254.169.254": self.imds,
            **{f" {name}": f" {self.folder}{name}" for name in _OURS},
            **{f'"{name}': f'"{self.folder}{name}' for name in _OURS},
            **{f"\n{name}": f"\n{self.folder}{name}" for name in _OURS},
        }
        if EVENT in text:
            places[EVENT] = self.simulator.start_scenario("user-reboot")[0]
            eventually(lambda: places[EVENT] in get(f"http://127.0.0.1:{self.port}/api/v1/events"))
        text = f"\n{text}"
        for name, here in places.items():
            text = text.replace(name, here)
        outside = re.findall(r"[\s\"'=](/[a-z]\S*)", text.replace(str(self.folder), "."))
        assert not outside, f"these paths are not below the stage: {outside}"
        return text

    def _environ(self) -> dict[str, str]:
        return os.environ | {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "EVENT_TRANSITION": "scheduled",
            "SCHEDULED_EVENTS_IMDS_ENDPOINT": self.imds,
            "SCHEDULED_EVENTS_EXPORTER_URL": f"http://127.0.0.1:{self.port}",
            "SCHEDULED_EVENTS_STATE_DIRECTORY": str(self.folder / "state"),
            "SCHEDULED_EVENTS_WEB_LISTEN_ADDRESS": "127.0.0.1:0",
        }


@contextlib.contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    simulator = Simulator(speed=6)
    port = free_port()
    with SimulatorServer(simulator) as imds, http_receiver() as receiver:
        target = f"json://{receiver.authority}/"
        _furnish(folder, target)
        flags = ("--config.file", str(folder / "exporter.yml"), "--web.enable-lifecycle")
        with exporter(imds.url, folder / "running", port, *flags):
            eventually(lambda: get(f"http://127.0.0.1:{port}/-/ready"))
            yield Stage(folder, simulator, imds.url, port, target)


def _furnish(folder: Path, target: str) -> None:
    """Put the checkout's files, a configuration, and the programs that commands name into a folder."""
    for name in ("alerts", "dashboards", "deploy", "docs", "examples", "requirements"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "exporter.yml").write_text(f"notifications: {{targets: [{{name: oncall, url: '{target}'}}]}}\n")
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    (folder / "environment").write_text("")
    for name in ("bin", *_MADE):
        (folder / name).mkdir(parents=True)
    (folder / f"etc/systemd/system/{NAME}.service").touch()
    script = shutil.which(NAME, path=Path(sys.executable).parent)
    assert script, "the program is not installed beside this Python"
    _program(folder / "bin" / NAME, _PROGRAM.format(python=sys.executable, script=script))
    for name in NOT_HERE:
        _program(folder / "bin" / name, "#!/bin/sh\n[ -t 0 ] || cat >/dev/null\n")
    # The service runs by the configuration here; there is no exporter of its own to ask.
    run = f"{folder / 'bin' / NAME} run --config.file {folder / 'exporter.yml'}"
    shown = f"LoadState=loaded\nExecStart={{ path=x ; argv[]={run} ; pid=0 }}"
    _program(folder / "bin" / "systemctl", f"#!/bin/sh\ncat <<'END'\n{shown}\nEND\n")
    # A real one would bring a pip of its own.
    _program(folder / "bin" / "python3", '#!/bin/sh\n[ "$1 $2" = "-m venv" ] && mkdir -p "$3/bin"\n')
    (folder / "opt/scheduled-events/bin/pip").symlink_to(folder / "bin" / "pip")


def _program(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("stage")) as found:
        yield found


@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_commands_succeed(block: Block, theatre: Stage) -> None:
    """Each block runs, with other addresses and directories; programs that cannot run here are replaced."""
    done = theatre.run(block)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_replaced_is_used() -> None:
    """Programs that cannot run here are listed only if the documentation names them."""
    text = "".join(block.text for block in blocks("sh"))
    assert [name for name in NOT_HERE if not re.search(rf"(^|[\s/]){name}\s", text, re.MULTILINE)] == []
