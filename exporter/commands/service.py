"""`--service`: use flags, variables and files of the installed service, as systemd knows them."""

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import click

from exporter.config import PROGRAM
from exporter.errors import ExporterError

_PROPERTIES = ("LoadState", "ExecStart", "Environment", "EnvironmentFiles")
_CREDENTIALS = Path(f"/run/credentials/{PROGRAM}.service")
_SYSTEMCTL_SECONDS = 30
_STATE = Path("/var/lib") / PROGRAM


def variables(run: click.Command, show: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the service, with its flags as the variables that stand for them.

    ``show`` has the properties of the unit as `systemctl show` prints them.
    """
    if show.get("LoadState") != "loaded":
        raise ExporterError(
            f"--service: there is no service {PROGRAM}; pass the configuration as --config.file"
        )
    found = dict(word.split("=", 1) for word in shlex.split(show.get("Environment", "")))
    for path, optional in _files(show.get("EnvironmentFiles", "")):
        if path.exists() or not optional:
            found.update(_read(path))
    if _CREDENTIALS.exists():
        found["CREDENTIALS_DIRECTORY"] = str(_CREDENTIALS)
    if _STATE.exists():
        found["STATE_DIRECTORY"] = str(_STATE)
    found |= _flags(run, show.get("ExecStart", ""))
    host, _, port = found.get("SCHEDULED_EVENTS_WEB_LISTEN_ADDRESS", ":9843").rpartition(":")
    reachable = host if host not in ("", "0.0.0.0", "[::]") else "127.0.0.1"  # noqa: S104  # not to listen on
    return {"SCHEDULED_EVENTS_EXPORTER_URL": f"http://{reachable}:{port}"} | found


def use(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Put the variables of the service into the environment, under those that are set already."""
    if wanted and not context.resilient_parsing:
        run = cast(click.Group, context.find_root().command).commands["run"]
        for name, value in variables(run, _show()).items():
            os.environ.setdefault(name, value)


SERVICE = click.Option(
    ["--service"],
    is_flag=True,
    expose_value=False,
    callback=use,
    help="Use the flags, the environment and the configuration of the installed service (systemd); as root.",
)


def _show() -> dict[str, str]:
    command = ["systemctl", "show", f"{PROGRAM}.service", f"--property={','.join(_PROPERTIES)}"]
    try:
        done = subprocess.run(  # noqa: S603  # a program of the system
            command, capture_output=True, text=True, timeout=_SYSTEMCTL_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ExporterError(f"--service: systemctl failed: {error}") from error
    found: dict[str, str] = {}
    for name, _, value in (line.partition("=") for line in done.stdout.splitlines()):
        # Each file of variables is a line of its own.
        found[name] = f"{found[name]}\n{value}" if name in found else value
    return found


def _files(text: str) -> Iterator[tuple[Path, bool]]:
    """Yield each file, and whether it may be missing: ``/etc/a (ignore_errors=yes)``."""
    for path, _, options in (one.partition(" (") for one in text.split("\n") if one):
        yield Path(path), "ignore_errors=yes" in options


def _read(path: Path) -> dict[str, str]:
    """Read a file of variables as systemd does: NAME=VALUE lines, with quotes, and comments."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ExporterError(f"--service: {path} cannot be read: {error}; run this as root") from error
    pairs = (line.strip().partition("=") for line in lines if line.strip()[:1] not in ("", "#", ";"))
    return {name: "".join(shlex.split(value)) if value[:1] in "'\"" else value for name, _, value in pairs}


def _flags(run: click.Command, start: str) -> dict[str, str]:
    """Return the flags in a command line, ``{ path=... ; argv[]=PROGRAM run --a b ; ...}``, as variables."""
    words = shlex.split(start.partition("argv[]=")[2].partition(" ; ")[0])
    given = run.make_context("run", words[words.index("run") + 1 :] if "run" in words else [])
    found = {}
    for option in run.params:
        name = option.name or ""
        if (
            isinstance(option, click.Option)
            and given.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        ):
            value = given.params[name]
            found[str(option.envvar)] = " ".join(value) if option.multiple else str(value)
    return found
