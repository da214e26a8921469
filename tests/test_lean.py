import sys

import pytest

from tests.outputs.hooks.support import printed

SERVER = """
import exporter.app, exporter.cli, exporter.web.page
heavy = {
    "apprise", "bcrypt", "cryptography", "difflib", "exporter.imds.discovery", "jinja2",
    "logging.config", "multiprocessing", "opentelemetry", "requests", "urllib3", "yaml", "zoneinfo",
}
"""
COMMAND_LINE = """
from exporter import config
from exporter.config import loading
import exporter.cli
loading.load(None, config.Overrides())
heavy = {"apprise", "h11", "jinja2", "opentelemetry", "prometheus_client", "requests", "sqlite3"}
"""


START = """
import ctypes, gc, sys
from types import SimpleNamespace
from exporter import __main__ as program, cli
asked, sys.argv = [], ["program", "run", "--log.level", "info"]
ctypes.CDLL = lambda _: SimpleNamespace(mallopt=lambda *words: asked.append(words))
cli.main = lambda: print(gc.isenabled(), gc.get_freeze_count() > 10_000, "exporter.app" in sys.modules, asked)
program.main()
"""


def test_a_start_leaves_little_work_and_memory_behind() -> None:
    """The collector works, but not on what the imports made; glibc shares one arena, and returns 128 KiB."""
    asked = [(-8, 1), (-3, 131072)] if sys.platform == "linux" else []
    assert printed(START) == f"True True True {asked}\n"


@pytest.mark.parametrize("script", [SERVER, COMMAND_LINE], ids=["server", "command line"])
def test_nothing_heavy_is_imported_that_is_not_used(script: str) -> None:
    """Neither by the running exporter nor before a command, help or the check of a configuration."""
    assert printed(f"{script}\nimport sys\nprint(sorted(heavy & set(sys.modules)))") == "[]\n"
