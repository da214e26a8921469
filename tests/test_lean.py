"""Tests of `exporter.lean` and `exporter.frugal`: what is left out stays out, and can still be had."""

import subprocess
import sys

SCRIPT = """
import sys
import exporter.app, exporter.cli, exporter.web.page
heavy = {
    "apprise", "bcrypt", "chardet", "charset_normalizer", "cryptography", "importlib.metadata", "jinja2",
    "logging.config", "multiprocessing", "opentelemetry", "socks", "yaml", "zoneinfo",
}
print(sorted(heavy & set(sys.modules)))
"""

WHOLE = """
import exporter.app
import charset_normalizer, importlib.metadata
assert importlib.metadata.version("click")
print("whole")
"""

GIVEN = """
import requests
import exporter.app
from exporter.lean import requests as ours
assert ours is requests
print("as they were")
"""

LIGHT = """
import sys
from exporter import config
import exporter.cli
config.load(None, config.Overrides())
heavy = {"apprise", "h11", "jinja2", "opentelemetry", "prometheus_client", "requests", "sqlite3"}
print(sorted(heavy & set(sys.modules)))
"""


def loaded(script: str) -> str:
    """Run a script in a fresh interpreter, with warnings as errors; give what it prints."""
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.strip()


def test_the_running_exporter_imports_nothing_heavy_that_it_does_not_use() -> None:
    """Neither messaging nor tracing, nor what libraries bring along for other uses, is there."""
    assert loaded(SCRIPT) == "[]"


def test_what_is_left_out_can_be_had() -> None:
    """Whoever imports it later finds it as always."""
    assert loaded(WHOLE) == "whole"


def test_what_is_there_stays() -> None:
    """Nothing is taken from a process that has it already."""
    assert loaded(GIVEN) == "as they were"


def test_the_command_line_imports_what_a_command_uses() -> None:
    """Help, version and the check of a configuration wait for no server library."""
    assert loaded(LIGHT) == "[]"
