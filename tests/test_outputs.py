"""The promise of the seam: each output can be deleted alone, and none imports another."""

import ast
from pathlib import Path

import pytest

import exporter
from exporter.app import OUTPUTS
from exporter.commands import doctor
from exporter.commands.check_config import check_files
from exporter.commands.doctor import Asked
from exporter.outputs.output import Output
from tests.bench import Build
from tests.builders import raw_event

PACKAGE = Path(exporter.__file__).parent
NAMES = sorted(path.parent.name for path in (PACKAGE / "outputs").glob("*/__init__.py"))
# Commands, and the wiring in `app`, are above all outputs.
ABOVE = ("__init__", "__main__", "app", "cli", "commands", "outputs")
CORE = sorted({path.stem for path in PACKAGE.iterdir() if path.stem not in (*ABOVE, "__pycache__", "py")})


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports, also late and for types."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return names | {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}


def outputs_of(modules: set[str]) -> set[str]:
    return {
        name for name in NAMES for module in modules if f"{module}.".startswith(f"exporter.outputs.{name}.")
    }


def test_the_list_is_complete() -> None:
    """Each folder has one output, whose name is that of the folder."""
    assert sorted(output.name for output in OUTPUTS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_no_output_imports_another(name: str) -> None:
    """What two of them need is the model's."""
    files = (PACKAGE / "outputs" / name).rglob("*.py")
    assert {other for file in files for other in outputs_of(imported(file))} <= {name}


@pytest.mark.parametrize("room", CORE)
def test_the_core_imports_no_output(room: str) -> None:
    """It knows the seam alone."""
    path = PACKAGE / room
    files = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
    assert {str(file): outputs_of(imported(file)) for file in files if outputs_of(imported(file))} == {}


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: output.name)
def test_the_exporter_runs_without_an_output(
    build: Build, monkeypatch: pytest.MonkeyPatch, output: type[Output]
) -> None:
    """Without its line in `app`, it starts, polls and reloads, and the checks work."""
    rest = [one for one in OUTPUTS if one is not output]
    for place in ("exporter.app", "tests.bench.bench"):
        monkeypatch.setattr(f"{place}.OUTPUTS", rest)
    bench = build()
    bench.show(raw_event(), wait=5)
    assert (len(bench.api("current")), bench.api("problems"), bench.reload()) == (1, [], 200)
    assert check_files([bench.file], None) == 0
    assert doctor.run(Asked(exporter_url=bench.app.url), bench.clock) == 0
