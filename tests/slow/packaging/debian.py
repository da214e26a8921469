"""A clean Debian in a directory, for what is tested inside one, and what boots it."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_UNIT = """\
[Unit]
Requires=multi-user.target
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/check/{script}
StandardOutput=append:/check/log
StandardError=append:/check/log
ExecStopPost=/bin/systemctl --no-block poweroff
"""


PYTHON = ("python3", "python3-venv", "ca-certificates")


def root(name: str = "debian", packages: Sequence[str] = PYTHON, suite: str = "bookworm") -> Path:
    """Return the root of a Debian with systemd and what is named; it is kept for the next time."""
    directory = Path(os.environ["TOOLS"]) / name
    if not (directory / "complete").exists():
        shutil.rmtree(directory, ignore_errors=True)
        include = f"--include={','.join(('systemd', 'systemd-sysv', 'dbus', 'procps', *packages))}"
        # Debian has no keyring of Ubuntu, and knows no new Ubuntu; all of them are made alike.
        ubuntu = suite not in ("bookworm", "trixie")
        source = ("http://archive.ubuntu.com/ubuntu", "gutsy") if ubuntu else ()
        flags = ("--no-check-gpg", "--variant=minbase") if ubuntu else ("--variant=minbase",)
        subprocess.run(["debootstrap", *flags, include, suite, str(directory), *source], check=True)
        (directory / "complete").touch()
    return directory


def built(pattern: str) -> Path:
    (found,) = (Path(__file__).parents[3] / "dist").glob(pattern)
    return found


def boot(directory: Path, check: Path, script: str) -> None:
    """Boot a Debian with the directory of a check as /check, and run a script of this directory in it.

    Nothing of the root is changed, and it has no network but loopback.

    Raises:
        AssertionError: a step of the script failed; with all that it printed.
    """
    for name in (script, "eventually.sh"):
        shutil.copy(Path(__file__).with_name(name), check)
    unit = check.parent / "check.service"
    unit.write_text(_UNIT.format(script=script))
    command = ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--private-network"]
    command += ["--directory", str(directory), "--volatile=overlay", f"--bind={check}:/check"]
    command += [f"--bind-ro={unit}:/etc/systemd/system/check.service", "systemd.unit=check.service"]
    subprocess.run(command, check=True, timeout=850, stdout=subprocess.DEVNULL)
    log = (check / "log").read_text()
    assert log.endswith("\ncomplete\n"), log
