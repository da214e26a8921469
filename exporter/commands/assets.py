"""``assets``: writes alerts, dashboards and deployment files."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import exporter
from exporter.errors import ExporterError, cause


def write(directory: Path) -> Iterator[Path]:
    """Write the files into a new directory, and yield each of its parts once it is written.

    Raises:
        ExporterError: the directory is not empty, or cannot be written.
    """
    package = Path(exporter.__file__).parent
    installed = package / "assets"
    source = installed if installed.is_dir() else package.parent
    # In a checkout the directory also contains their sources and tests.
    ignored = shutil.ignore_patterns("*.py", "__pycache__", "source", "tests")
    try:
        if any(directory.glob("*")):
            raise ExporterError(f"{directory} is not empty; name a new directory")
        for kind in ("alerts", "dashboards", "deploy"):
            shutil.copytree(source / kind, directory / kind, ignore=ignored)
            yield directory / kind
    except OSError as error:
        raise ExporterError(f"cannot write files into {directory}: {cause(error)}") from error
