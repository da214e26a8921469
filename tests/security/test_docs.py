"""The page about reliability names tests that there are."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = ("reliability.md", "threat-model.md")


def test_every_test_that_is_named_exists() -> None:
    """A claim whose test was renamed or dropped is found."""
    text = (ROOT / "docs" / PAGES[0]).read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 30
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).exists() or (name and f"def {name}(" not in (ROOT / path).read_text())
    ]
    assert missing == []


def test_links_lead_somewhere() -> None:
    """Every link to a file of this project has one."""
    for page in PAGES:
        links = re.findall(r"\]\(([^):#]+)\)", (ROOT / "docs" / page).read_text())
        assert all((ROOT / "docs" / link).exists() for link in links)
