import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from exporter.cli import main
from exporter.commands import flags
from exporter.errors import ExporterError

ADDRESS = "SCHEDULED_EVENTS_WEB_LISTEN_ADDRESS"
RUN = main.commands["run"]
LOADED = {"LoadState": "loaded"}
START = "{{ path=/usr/bin/x ; argv[]=/usr/bin/x run {} ; ignore_errors=no ; pid=0 ; code=(null) }}"


def test_flags_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags become variables; the environment file overrides the unit; optional files may be missing."""
    for name in ("_STATE", "_CREDENTIALS"):
        monkeypatch.setattr(flags, name, tmp_path)
    file = tmp_path / "environment"
    file.write_text(f"# secrets\nONCALL_URL='json://a b'\nA=2\n\n; more\nB=x=y z\n{ADDRESS}=[::1]:9\n")
    files = f"{file} (ignore_errors=no)\n/nowhere (ignore_errors=yes)"
    words = "--config.file /etc/x.yml --notify a://b --notify c://d"
    unit = {"ExecStart": START.format(words), "Environment": 'A=1 "C=d=e f"', "EnvironmentFiles": files}
    found = flags.service_variables(RUN, LOADED | unit)
    assert found == {
        "A": "2",
        "B": "x=y z",
        "C": "d=e f",
        "ONCALL_URL": "json://a b",
        "SCHEDULED_EVENTS_CONFIG_FILE": "/etc/x.yml",
        "SCHEDULED_EVENTS_EXPORTER_URL": "http://[::1]:9",
        "SCHEDULED_EVENTS_NOTIFY": "a://b c://d",
        ADDRESS: "[::1]:9",
        "STATE_DIRECTORY": str(tmp_path),
        "CREDENTIALS_DIRECTORY": str(tmp_path),
    }


@pytest.mark.parametrize(
    ("show", "message"),
    [
        ({"LoadState": "not-found"}, "--service: there is no service azure-scheduled-events-exporter; pass"),
        (LOADED | {"EnvironmentFiles": "/nowhere (ignore_errors=no)"}, "/nowhere cannot be read"),
    ],
)
def test_what_cannot_be_used(show: dict[str, str], message: str) -> None:
    """The error has the reason and the remedy."""
    with pytest.raises(ExporterError, match=message):
        flags.service_variables(RUN, show)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "there is no systemctl on this machine; pass the configuration as --config.file"),
        ("", "systemctl failed: Permission denied"),
        ("#!/bin/sh\nexit 1\n", "systemctl failed: status 1"),
        (
            "#!/bin/sh\necho System has not been booted with systemd >&2; exit 1\n",
            "systemctl failed: System has not been booted with systemd",
        ),
    ],
)
def test_systemctl_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, reason: str
) -> None:
    """The error has its reason in words."""
    if script is not None:
        (tmp_path / "systemctl").write_text(script)
        (tmp_path / "systemctl").chmod(0o755 if script else 0o644)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ExporterError, match=f"^--service: {reason}$"):
        flags.use_service(click.Context(main), flags.SERVICE, wanted=True)


def test_the_commands_take_it(tmp_path: Path) -> None:
    """`check-config --service` checks the file that the unit names, with the variables of all its files."""
    config, environment = tmp_path / "exporter.yml", tmp_path / "environment"
    config.write_text('notifications: {targets: [{name: a, url: "${ONCALL_URL}"}]}\n')
    environment.write_text("ONCALL_URL=json://127.0.0.1:9/\n")
    systemctl = tmp_path / "systemctl"
    lines = ["LoadState=loaded", f"EnvironmentFiles={environment} (ignore_errors=yes)"]
    # As systemctl shows what a drop-in adds.
    lines += ["EnvironmentFiles=/nowhere (ignore_errors=yes)"]
    lines += [f"ExecStart={START.format(f'--config.file {config}')}"]
    systemctl.write_text("#!/bin/sh\ncat <<'END'\n{}\nEND\n".format("\n".join(lines)))
    systemctl.chmod(0o755)
    command = [sys.executable, "-m", "exporter", "check-config", "--service"]
    environ = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, done.stdout) == (0, f"{config}: ok\n"), done.stderr
