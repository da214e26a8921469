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


@pytest.mark.parametrize("script", [SERVER, COMMAND_LINE], ids=["server", "command line"])
def test_nothing_heavy_is_imported_that_is_not_used(script: str) -> None:
    """Neither by the running exporter nor before a command, help or the check of a configuration."""
    assert printed(f"{script}\nimport sys\nprint(sorted(heavy & set(sys.modules)))") == "[]\n"
