import re

import pytest
from apprise import Apprise

from tests.docs.pages import ROOT

ROWS = re.findall(
    r"^\| (.+?) \|.*\| `(\w+://[^`]+)` \|$", (ROOT / "docs/services.md").read_text(), re.MULTILINE
)


@pytest.mark.parametrize(("service", "url"), ROWS)
def test_apprise_takes_the_url(service: str, url: str) -> None:
    """Apprise accepts each URL; the login of a mail server is the part before its colon."""
    plugin = Apprise.instantiate(url)
    assert plugin is not None
    if "login" in service and "without" not in service:
        assert plugin.user == "user@example.com"


def test_there_are_at_least_ten() -> None:
    """The table is read as it is written."""
    assert len(ROWS) >= 10
