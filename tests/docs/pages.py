"""The pages with their blocks of code, and the sample of a configuration."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


class Block(msgspec.Struct, frozen=True):
    """A fenced block of code; ``line`` is that of its fence."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    return [block for block in _blocks() if block.language in languages]


def _blocks() -> Iterator[Block]:
    for page in [README, *sorted(DOCS.rglob("*.md"))]:
        text = page.read_text()
        for found in _FENCE.finditer(text):
            indent, language, body = found.groups()
            line = text.count("\n", 0, found.start()) + 1
            yield Block(page, line, language, re.sub(f"^{indent}", "", body, flags=re.MULTILINE))


def sample() -> str:
    """Return deploy/exporter.yml with every key in use: those stand directly behind the sign of a comment."""
    parts = (ROOT / "deploy" / "exporter.yml").read_text().split("\n\n")
    keys = (re.search(r"(?ms)^#[a-z].*", part) for part in parts)
    return "\n\n".join(re.sub(r"(?m)^#", "", found[0]) for found in keys if found)
