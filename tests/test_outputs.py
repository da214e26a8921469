"""The promise of the seam: each output can be deleted alone, and none imports another."""

import ast
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import exporter
from exporter.app import OUTPUTS
from exporter.simulator import Simulator, SimulatorServer
from tests.end_to_end.program import eventually, free_port

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


@pytest.mark.parametrize("name", NAMES)
def test_the_exporter_runs_without_an_output(name: str, tmp_path: Path) -> None:
    """With its folder and its lines in `app` removed, it starts, polls and stops, and the checks work."""
    copy = tmp_path / "exporter"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(copy / "outputs" / name)
    text = (copy / "app.py").read_text()
    (imports,) = re.findall(rf"from exporter\.outputs\.{name}[\w.]* import (\w+)\n", text)
    text = re.sub(rf"from exporter\.outputs\.{name}[\w.]* import \w+\n|    {imports},\n", "", text)
    (copy / "app.py").write_text(text)
    settings, port = tmp_path / "exporter.yml", free_port()
    settings.write_text("imds: {timeout: 1s}")
    with SimulatorServer(Simulator(idle=True)) as imds:
        command = [sys.executable, "-m", "exporter", "run", "--imds.endpoint", imds.url]
        command += ["--state.directory", str(tmp_path / "state"), "--web.listen-address", f"127.0.0.1:{port}"]
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as process:
            try:
                eventually(lambda: process.poll() is not None or is_ready(port))
                assert process.poll() is None
                for check in (("check-config", str(settings)), ("doctor", "--config.file", str(settings))):
                    command = [sys.executable, "-m", "exporter", *check]
                    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
                    assert (str(settings) in done.stdout, done.stderr) == (True, "")
            finally:
                process.terminate()
                _, log = process.communicate()
    assert (process.returncode, b"Traceback" in log) == (0, False)


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
