"""Tests of what is declared: every library that is imported, and versions with which the program works."""

import ast
import functools
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
MINIMUMS = dict(requirement.split(">=") for requirement in DECLARED)
# Data that the standard library reads.
NOT_IMPORTED = {"tzdata"}


def normalized(name: str) -> str:
    """Return the name of a distribution as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(folder: Path) -> Iterator[str]:
    """Yield the modules that the code in a folder imports from elsewhere, with what it takes from them."""
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            match node:
                case ast.Import():
                    yield from (name.name for name in node.names)
                case ast.ImportFrom(module=str() as module, level=0):
                    yield from (f"{module}.{name.name}" for name in node.names)


@functools.cache
def owners() -> dict[str, str]:
    """Return which distribution each installed module belongs to."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        owner = normalized(distribution.name)
        for file in distribution.files or ():
            parts = [*file.parts[:-1], file.name.partition(".")[0]]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = owner
    return found


def used(folder: Path) -> set[str]:
    """Return the distributions that the code in a folder imports from directly."""
    installed, found = owners(), set()
    for module in imported(folder):
        parts = module.split(".")
        if parts[0] in sys.stdlib_module_names or (ROOT / parts[0]).is_dir():
            continue
        names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
        found.add(next((installed[name] for name in names if name in installed), module))
    return found


def test_what_is_imported_is_declared() -> None:
    """Each library that the program imports is declared itself, and each declared one is imported."""
    assert used(ROOT / "exporter") == set(map(normalized, MINIMUMS)) - NOT_IMPORTED


@pytest.mark.parametrize("folder", ["tests", "benchmarks", "dashboards", "examples", "scripts"])
def test_what_development_imports_is_declared(folder: str) -> None:
    """Tests and tools import what the program or `dev.in` declares, not what happens to be installed."""
    lines = (ROOT / "requirements" / "dev.in").read_text().splitlines()
    tools = {normalized(line.partition("==")[0]) for line in lines if not line.startswith("#")}
    assert used(ROOT / folder) <= tools | set(map(normalized, MINIMUMS))


def test_the_lowest_versions_are_the_declared_ones() -> None:
    """`make test-lowest` runs with the minimum of each dependency, so that none is a mere claim."""
    text = (ROOT / "requirements" / "lowest.txt").read_text()
    pins = dict(re.findall(r"^(\S+)==(\S+)", text, re.MULTILINE))
    for name, minimum in MINIMUMS.items():
        assert re.fullmatch(rf"{re.escape(minimum)}(\.0)*", pins[normalized(name)]), name


@pytest.mark.parametrize("name", ["runtime", "dev", "lowest", "phoenix", "docs"])
def test_pins_name_no_index(name: str) -> None:
    """Pinned requirements are hashed and come from wherever pip is configured to look."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert "://" not in text
    assert all("--hash=sha256:" in pin for pin in re.split(r"^(?=\S+==)", text, flags=re.MULTILINE)[1:])
