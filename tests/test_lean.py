"""Tests of `exporter.lean`: what is left out of the process stays out, and can still be had."""

import subprocess
import sys

SCRIPT = """
import sys
import exporter.app, exporter.cli
heavy = {"apprise", "charset_normalizer", "chardet", "jinja2", "opentelemetry", "bcrypt", "cryptography"}
print(sorted(heavy & set(sys.modules)))
import charset_normalizer
"""

LIGHT = """
import sys
from exporter import config
import exporter.cli
config.load(None, config.Overrides())
heavy = {"apprise", "jinja2", "opentelemetry", "prometheus_client", "requests", "sqlite3", "uvicorn"}
print(sorted(heavy & set(sys.modules)))
"""


def loaded(script: str) -> str:
    """Run a script in a fresh interpreter, with warnings as errors; give what it prints."""
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.strip()


def test_the_running_exporter_imports_nothing_heavy_that_it_does_not_use() -> None:
    """Neither messaging nor guessing of encodings is imported; the latter can be by whoever needs it."""
    assert loaded(SCRIPT) == "[]"


def test_the_command_line_imports_what_a_command_uses() -> None:
    """Help, version and the check of a configuration wait for no server library."""
    assert loaded(LIGHT) == "[]"
