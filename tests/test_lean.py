import pytest

from tests.hooks.support import printed

SERVER = """
import exporter.app, exporter.cli, exporter.web.page
heavy = {
    "apprise", "bcrypt", "cryptography", "difflib", "exporter.imds.discovery", "exporter.web.tls", "jinja2",
    "logging.config", "multiprocessing", "opentelemetry", "yaml", "zoneinfo",
}
"""
COMMAND_LINE = """
from exporter import config
from exporter.config import loading
import exporter.cli
loading.load(None, config.Overrides())
heavy = {"apprise", "h11", "jinja2", "opentelemetry", "prometheus_client", "requests", "sqlite3"}
"""


def test_modules_are_not_searched_for_garbage() -> None:
    """The collector works after the start, and leaves out what the imports made."""
    code = "import gc, sys\nfrom exporter import __main__ as program\nprogram._import_program()\n"
    shown = "print(gc.isenabled(), gc.get_freeze_count() > 10_000, 'exporter.app' in sys.modules)"
    assert printed(code + shown) == "True True True\n"


@pytest.mark.parametrize("script", [SERVER, COMMAND_LINE], ids=["server", "command line"])
def test_nothing_heavy_is_imported_that_is_not_used(script: str) -> None:
    """Neither by the running exporter nor before a command, help or the check of a configuration."""
    assert printed(f"{script}\nimport sys\nprint(sorted(heavy & set(sys.modules)))") == "[]\n"
