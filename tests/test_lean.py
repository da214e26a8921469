import subprocess
import sys

SCRIPT = """
import sys
import exporter.app, exporter.cli, exporter.web.page
heavy = {
    "apprise", "bcrypt", "cryptography", "difflib", "exporter.imds.discovery", "exporter.web.tls", "jinja2",
    "logging.config", "multiprocessing", "opentelemetry", "yaml", "zoneinfo",
}
print(sorted(heavy & set(sys.modules)))
"""

LIGHT = """
import sys
from exporter import config
from exporter.config import loading
import exporter.cli
loading.load(None, config.Overrides())
heavy = {"apprise", "h11", "jinja2", "opentelemetry", "prometheus_client", "requests", "sqlite3"}
print(sorted(heavy & set(sys.modules)))
"""


def loaded(script: str) -> str:
    """Run a script in a fresh interpreter, with warnings as errors; return what it prints."""
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.strip()


def test_the_running_exporter_imports_nothing_heavy_that_it_does_not_use() -> None:
    """Neither messaging nor tracing, nor what libraries bring along for other uses, is there."""
    assert loaded(SCRIPT) == "[]"


def test_the_command_line_imports_what_a_command_uses() -> None:
    """Help, version and the check of a configuration wait for no server library."""
    assert loaded(LIGHT) == "[]"
