"""A clean Debian in a directory, for what is tested inside one, and what boots it."""

import os
import shutil
import subprocess
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


def root(name: str = "debian", *packages: str) -> Path:
    """Return the root of a Debian with systemd, Python and what is named; it is kept for the next time."""
    directory = Path(os.environ["TOOLS"]) / name
    if not (directory / "complete").exists():
        shutil.rmtree(directory, ignore_errors=True)
        usual = "systemd,systemd-sysv,dbus,procps,python3,python3-venv,ca-certificates"
        include = f"--include={','.join((usual, *packages))}"
        subprocess.run(["debootstrap", "--variant=minbase", include, "bookworm", directory], check=True)
        (directory / "complete").touch()
    return directory


def boot(directory: Path, check: Path, script: str) -> str:
    """Boot a Debian with the directory of a check as /check, run a script of it, and return what it prints.

    Nothing of the root is changed, and it has no network but loopback.
    """
    shutil.copy(Path(__file__).with_name("eventually.sh"), check)
    unit = check.parent / "check.service"
    unit.write_text(_UNIT.format(script=script))
    command = ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--private-network"]
    command += ["--directory", str(directory), "--volatile=overlay", f"--bind={check}:/check"]
    command += [f"--bind-ro={unit}:/etc/systemd/system/check.service", "systemd.unit=check.service"]
    subprocess.run(command, check=True, timeout=500, stdout=subprocess.DEVNULL)
    return (check / "log").read_text()
