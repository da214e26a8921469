"""Build the .deb and the .rpm, and the list of what they contain: ``python -m scripts.packages NFPM WHEEL``.

A package has the program and all it needs in /opt/scheduled-events, installed as pinned and byte-compiled. It
runs by the distribution's Python of the same minor version as the one that runs this script.
"""

import gzip
import json
import os
import platform
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import click

from exporter import __version__
from exporter.config import PROGRAM

_PREFIX = Path("opt/scheduled-events")
_SBOM = "sbom.cdx.json"
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PROJECT = Path(__file__).parent.parent
_FILE = click.Path(exists=True, path_type=Path, resolve_path=True)


def _run(*command: str | Path, **variables: str) -> None:
    subprocess.run(command, check=True, cwd=_PROJECT, env=os.environ | variables)  # noqa: S603  # programs of ours and of the build


def _install(wheel: Path, root: Path) -> None:
    """Install the pinned requirements and the wheel into an environment under the root."""
    prefix = root / _PREFIX
    venv.create(prefix, symlinks=True)
    python = prefix / "bin" / "python"
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-compile",
    ]
    _run(*pip, "--only-binary", ":all:", "--require-hashes", "--requirement", "requirements/runtime.txt")
    # By name, as a path would be recorded.
    _run(*pip, "--no-deps", "--no-index", "--find-links", wheel.parent, f"{PROGRAM}=={__version__}")


def _describe(root: Path) -> None:
    """Write manual, completions, and the environment's software bill of materials (CycloneDX)."""
    manual = root / "manual"
    _run(sys.executable, "-m", "scripts.manual", manual)
    page = manual / f"{PROGRAM}.1"
    page.with_suffix(".1.gz").write_bytes(gzip.compress(page.read_bytes(), mtime=0))
    _run(
        *(sys.executable, "-m", "cyclonedx_py", "environment", root / _PREFIX / "bin" / "python"),
        *("--pyproject", "pyproject.toml", "--mc-type", "application", "--output-reproducible"),
        *("--output-file", root / _SBOM),
    )
    sbom = json.loads((root / _SBOM).read_text())
    # The project's file leaves it to the code.
    sbom["metadata"]["component"]["version"] = __version__
    (root / _SBOM).write_text(json.dumps(sbom, indent=2) + "\n")


def _relocate(root: Path) -> None:
    """Make the environment that of the target: its Python, its paths, and code that is compiled already."""
    prefix = root / _PREFIX
    scripts = prefix / "bin"
    for path in scripts.iterdir():
        if path.name != PROGRAM:
            path.unlink()
    for name in ("python", f"python{_PYTHON}"):
        (scripts / name).symlink_to(f"/usr/bin/python{_PYTHON}")
    script = scripts / PROGRAM
    script.write_text(script.read_text().replace(str(root), ""))
    settings = f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {_PYTHON}\n"
    (prefix / "pyvenv.cfg").write_text(settings)
    compiling: list[str | Path] = [
        "-m",
        "compileall",
        "-q",
        "-s",
        root,
        "-p",
        "/",
        "--invalidation-mode",
        "unchecked-hash",
    ]
    _run(sys.executable, *compiling, prefix / "lib")


@click.command()
@click.argument("nfpm", type=_FILE)
@click.argument("wheel", type=_FILE)
def main(nfpm: Path, wheel: Path) -> None:
    """Build the packages beside the wheel."""
    root = _PROJECT / "build" / "package"
    shutil.rmtree(root, ignore_errors=True)
    _install(wheel, root)
    _describe(root)
    _relocate(root)
    shutil.copy(root / _SBOM, wheel.parent / f"{PROGRAM}-{__version__}.cdx.json")
    for packager in ("deb", "rpm"):
        _run(
            *(nfpm, "package", "--config", "deploy/packages/nfpm.yaml"),
            *("--packager", packager, "--target", wheel.parent),
            VERSION=__version__,
            ARCH=_ARCHITECTURES[platform.machine()],
            PYTHON_VERSION=_PYTHON,
            PYTHON=_PYTHON.replace(".", ""),
        )


if __name__ == "__main__":
    main()
