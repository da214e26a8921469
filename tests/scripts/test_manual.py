"""Manual page and completions of the packages: made from the command line, and accepted by their programs."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from exporter.cli import main as program
from exporter.config import PROGRAM


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("manual")
    subprocess.run([sys.executable, "-m", "scripts.manual", path], check=True)
    return path


def formatted(page: Path) -> str:
    """Return the page as a terminal shows it, in one line; troff must not warn of anything."""
    command = ["groff", "-man", "-Tascii", "-ww", "-P-cbou", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return " ".join(done.stdout.split())


def test_the_page_describes_every_command(directory: Path) -> None:
    """Each command is there with its help, each flag with its help and its variable."""
    text = formatted(directory / f"{PROGRAM}.1")
    for name, command in program.commands.items():
        assert f" {name} [OPTIONS]" in text
        assert " ".join(str(command.help).split()) in text
        for option in (one for one in command.params if isinstance(one, click.Option)):
            assert " ".join(str(option.help).split()) in text
            assert option.envvar is None or f"Environment: {option.envvar}." in text


def test_bash_completes_commands_and_flags(directory: Path, tmp_path: Path) -> None:
    """What the script makes of the Tab key: commands first, then the flags of one."""
    launcher = tmp_path / PROGRAM
    launcher.write_text(f"#!{sys.executable}\nfrom exporter.__main__ import main\n\nmain()\n")
    launcher.chmod(0o755)
    asked = f"""
    source {directory}/bash/{PROGRAM}
    complete -p {PROGRAM}
    COMP_WORDS=({PROGRAM} check); COMP_CWORD=1
    _azure_scheduled_events_exporter_completion {PROGRAM}; echo "${{COMPREPLY[*]}}"
    COMPREPLY=(); COMP_WORDS=({PROGRAM} run --web.); COMP_CWORD=2
    _azure_scheduled_events_exporter_completion {PROGRAM}; echo "${{COMPREPLY[*]}}"
    """
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", asked], capture_output=True, text=True, check=True, env=os.environ | {"PATH": path}
    )
    registered, commands, flags = done.stdout.splitlines()
    assert registered.endswith(f" {PROGRAM}")
    assert commands == "check-config"
    assert flags.split() == ["--web.listen-address", "--web.config.file", "--web.enable-lifecycle"]
