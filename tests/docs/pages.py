"""The pages, their blocks of code, and their headings as anchors."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


class Block(msgspec.Struct, frozen=True):
    """A fenced block of code; ``line`` is that of its fence."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Return the pages for users and contributors."""
    folders = (DOCS, ROOT / "alerts", ROOT / "deploy", ROOT / "examples")
    return sorted([*ROOT.glob("*.md"), *(file for folder in folders for file in folder.rglob("*.md"))])


def blocks(*languages: str) -> list[Block]:
    """Return the blocks of README.md and docs/ in these languages."""
    return [block for block in _blocks() if block.language in languages]


def _blocks() -> Iterator[Block]:
    for page in [README, *sorted(DOCS.rglob("*.md"))]:
        text = page.read_text()
        for found in _FENCE.finditer(text):
            indent, language, body = found.groups()
            line = text.count("\n", 0, found.start()) + 1
            yield Block(page, line, language, re.sub(f"^{indent}", "", body, flags=re.MULTILINE))


def links(page: Path) -> list[str]:
    """Return the targets of a page's links and pictures."""
    return re.findall(r"(?:\]\(|<img src=\")([^)\s\"]+)", _CODE.sub("", page.read_text()))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the docs site make them."""
    headings = re.findall(r"^#+ (.+)$", _CODE.sub(_inline, page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def _inline(code: re.Match[str]) -> str:
    return "" if "\n" in code[0] else code[0].strip("`")
