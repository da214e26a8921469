"""`assets`: write out the alerts, dashboards and deployment files that belong to this version."""

import shutil
from pathlib import Path

import click

from exporter.errors import ExporterError

_KINDS = ("alerts", "dashboards", "deploy")
# In a checkout they lie among what makes and tests them.
_NOT_ASSETS = shutil.ignore_patterns("*.py", "__pycache__", "source", "tests")


def write(directory: Path) -> None:
    """Write the files into a directory that is empty or does not exist yet.

    Raises:
        ExporterError: there is something in the directory, or it cannot be written.
    """
    package = Path(__file__).parent.parent
    installed = package / "assets"
    source = installed if installed.is_dir() else package.parent
    try:
        if directory.exists() and any(directory.iterdir()):
            raise ExporterError(f"{directory} is not empty; name a new directory")
        for kind in _KINDS:
            shutil.copytree(source / kind, directory / kind, ignore=_NOT_ASSETS)
            click.echo(directory / kind)
    except OSError as error:
        raise ExporterError(f"cannot write the files: {error}") from error
