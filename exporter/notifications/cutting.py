"""Cutting messages to the length that a service accepts, without breaking their markup."""

import re
from html import escape
from html.parser import HTMLParser

from exporter.model.messages import TextFormat

TITLE_LIMIT = 150
CUT = "(The rest was cut, because the service accepts no longer messages.)"
_FENCE = re.compile(r"^ {0,3}```", re.MULTILINE)
_CLOSING_FENCE = "\n```"
_SKIPPED = ("head", "script", "style", "template")
_BLOCKS = ("p", "div", "li", "ul", "ol", "tr", "br", "h1", "h2", "h3", "h4", "table", "pre", "hr")


def fit_title(title: str, limit: int | None) -> str:
    """Cut a one-line title to 150 characters, and to two thirds of a limit that leaves less for it."""
    most = TITLE_LIMIT if limit is None else max(1, min(TITLE_LIMIT, limit * 2 // 3))
    if len(title) <= most:
        return title
    return title[: most - 3].rstrip() + "..." if most > 3 else title[:most]


def fit_body(body: str, room: int | None, text_format: TextFormat) -> str:
    """Cut a body to ``room`` characters, with a last line that says so where there is room for it."""
    if room is None or len(body) <= room:
        return body
    if text_format == "html":
        return _fit_html(body, room)
    note = f"\n\n{CUT}"
    if room < 2 * len(note):
        return _trimmed(body, max(room, 0), text_format)
    return _trimmed(body, room - len(note), text_format) + note


def _trimmed(body: str, room: int, text_format: TextFormat) -> str:
    kept = body[:room]
    line_end = kept.rfind("\n")
    if line_end > room // 2:
        kept = kept[:line_end]
    if text_format == "markdown":
        kept = _closed(kept, room)
    return kept.rstrip()


def _closed(kept: str, room: int) -> str:
    """Leave neither a fenced block nor a code span open."""
    if len(_FENCE.findall(kept)) % 2:
        cut = kept[: max(room - len(_CLOSING_FENCE), 0)]
        if len(_FENCE.findall(cut)) % 2:
            return cut.rstrip("`") + _CLOSING_FENCE
        kept = cut
    if kept.count("`") % 2:
        kept = kept[: kept.rindex("`")].rstrip("`")
    return kept


def _fit_html(body: str, room: int) -> str:
    """Turn it into paragraphs of plain text, as many as fit: cut HTML would be broken HTML."""
    note = f"<p>{escape(CUT)}</p>"
    noted = room >= 2 * len(note)
    left = room - len(note) if noted else room
    kept: list[str] = []
    for line in _text_lines(body):
        paragraph = f"<p>{escape(line)}</p>\n"
        if len(paragraph) > left:
            kept.append(_part(line, left))
            break
        kept.append(paragraph)
        left -= len(paragraph)
    return "".join(kept) + (note if noted else "")


def _part(line: str, room: int) -> str:
    inner = room - len("<p></p>\n")
    escaped = [escape(letter) for letter in line]
    taken = 0
    while taken < len(escaped) and inner >= len(escaped[taken]):
        inner -= len(escaped[taken])
        taken += 1
    return f"<p>{''.join(escaped[:taken])}</p>\n" if taken else ""


def _text_lines(html: str) -> list[str]:
    reader = _TextReader()
    reader.feed(html)
    reader.close()
    return [line for line in (" ".join(part.split()) for part in "".join(reader.pieces).split("\n")) if line]


class _TextReader(HTMLParser):
    """Collects the text that a browser would show, a line for each block."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002  # as given
        self._hidden += tag in _SKIPPED
        if tag in _BLOCKS:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = max(0, self._hidden - (tag in _SKIPPED))
        if tag in _BLOCKS:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.pieces.append(data.replace("\n", " "))
