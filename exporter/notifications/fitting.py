"""Cutting of titles and bodies to the length that a service accepts."""

import re
from html import escape, unescape

from exporter.model.messages import TextFormat

CUT = "(The rest was cut, because the service accepts no longer messages.)"
_LONGEST_TITLE = 150
BODY_TAG = re.compile(r"<body\b[^>]*>", re.IGNORECASE)
_FENCE = re.compile(r"^ {0,3}```", re.MULTILINE)
_CLOSING_FENCE = "\n```"
_HIDDEN = re.compile(
    r"<!--.*?(?:-->|\Z)|<(head|script|style|template)\b.*?(?:</\1>|\Z)", re.IGNORECASE | re.DOTALL
)
_TAG = re.compile(r"<[^<>]*>")
_LINE_END = re.compile(r"<br\b[^>]*>|</?(?:p|div|li|[uo]l|tr|h[1-6]|table|pre)\b[^>]*>", re.IGNORECASE)
_PARAGRAPH = "</p>\n<p>"
# Half a character reference, and the end of a paragraph, or a part of it.
_CUT_OFF = re.compile(r"(?:</p>\s*)?(?:<p>|[&<][^;>]*)?\Z")


def fit_title(title: str, limit: int | None) -> str:
    """Cut a one-line title to 150 characters, or to two thirds of ``limit`` if that is less."""
    most = _LONGEST_TITLE if limit is None else max(1, min(_LONGEST_TITLE, limit * 2 // 3))
    if len(title) <= most:
        return title
    return title[: most - 3].rstrip() + "..." if most > 3 else title[:most]


def fit_body(body: str, room: int | None, text_format: TextFormat) -> str:
    """Cut a body to ``room`` characters, with a note at the end if there is room for it.

    HTML becomes paragraphs of text, because its elements must not be cut.
    """
    if room is None or len(body) <= room:
        return body
    before, after, note = "", "", f"\n\n{CUT}"
    if text_format == "html":
        parts = (unescape(_TAG.sub("", part)).split() for part in _LINE_END.split(_HIDDEN.sub("", body)))
        body = _PARAGRAPH.join(escape(" ".join(words)) for words in parts if words)
        before, after, note = "<p>", "</p>", f"{_PARAGRAPH}{CUT}"
    if room < 2 * len(note):
        note = ""
    left = room - len(before + note + after)
    kept = body[: max(left, 0)]
    line_end = kept.rfind("\n")
    if line_end > left // 2:
        kept = kept[:line_end]
    if text_format == "markdown":
        kept = _closed(kept, left)
    elif text_format == "html":
        kept = _CUT_OFF.sub("", kept)
    return before + kept.rstrip() + note + after if kept or note else ""


def _closed(kept: str, room: int) -> str:
    """Close an open fenced block, and remove an open code span."""
    if len(_FENCE.findall(kept)) % 2:
        inside = kept[: room - len(_CLOSING_FENCE)].rstrip("`\n")
        return inside + _CLOSING_FENCE if len(_FENCE.findall(inside)) % 2 else inside
    return kept[: kept.rindex("`")].rstrip("`") if kept.count("`") % 2 else kept
