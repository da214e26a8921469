"""Links lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import README, ROOT, anchors, links, pages


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    """Every relative link is a file of the project, and its fragment a heading there."""
    for link in links(page):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, fragment = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not fragment or fragment in anchors(target), link


def test_every_page_is_listed() -> None:
    """The index leads to every page of docs/."""
    index = ROOT / "docs" / "index.md"
    listed = {link.partition("#")[0] for link in links(index)}
    assert {file.name for file in index.parent.glob("*.md")} - listed == {"index.md"}


def test_every_page_is_in_the_navigation() -> None:
    """The site shows every page of docs/."""
    listed = set(re.findall(r"^ +- .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    docs = ROOT / "docs"
    assert {str(file.relative_to(docs)) for file in docs.rglob("*.md")} == listed


def test_the_readme_is_short() -> None:
    """The README is an introduction; the reference is in docs/."""
    assert len(README.read_text().splitlines()) <= 180
