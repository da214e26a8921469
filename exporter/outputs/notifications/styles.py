"""Escaping of external text for message formats: no markup, no mentions, no control characters."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from enum import Enum
from functools import lru_cache
from typing import Any, Self, TypeVar

import msgspec
from markupsafe import Markup

from exporter.model.messages import AnyMessage, Message, TextFormat, WatchMessage
from exporter.model.wording import printable

# The most characters of a message's field; for others the style's limit applies.
_LONGEST_BY_FIELD = {
    **dict.fromkeys(("type", "source", "status", "field"), 40),
    **dict.fromkeys(("id", "ids", "resources"), 100),
    **dict.fromkeys(("old", "new"), 200),
    "vm": 300,
    # With the end of a hook's output.
    "detail": 800,
}
_KEPT_TEXTS = 256  # most texts of a message, such as the names of this VM, are also in the next one
_UNCHANGED = (Enum, bool, int, float)
_CUT = "..."
M = TypeVar("M", Message, WatchMessage, AnyMessage)
# Slack reads <!channel>, <#C1> and <https://a|b> even inside code; Discord reads <t:1> and the like.
_SPECIAL = re.compile(r"<(?=[!#]|[A-Za-z]+:)")
# Anywhere, at the start of a line, in a character reference, and at the end of a word: emphasis needs an
# underscore there. Inside and at the beginning of words, as in names of VMs, they are text.
_MARKUP = re.compile(
    r"[\\`*~|\[\]<]|^(?:[-+=#>]|\d+[.)](?=\s|$))|&(?=#?\w)|_(?=_*(?![A-Za-z0-9_]))", re.ASCII
)
_NOT_IN_TITLES = str.maketrans(dict.fromkeys("\\`*~|[]<>#", "?"))


class Data(str):
    """External text that is safe in its format; ``plain`` is its form for a code span."""

    __slots__ = ("plain",)
    plain: str

    def __new__(cls, safe: str, plain: str) -> Self:
        made = super().__new__(cls, safe)
        made.plain = plain
        return made


def flat(text: str, most: int = 500) -> str:
    """Return the text on one line, without control, bidirectional or invisible characters and mentions.

    White space becomes a space, invisible characters become ``?``, and ``@`` becomes ``(at)``, so that
    ``@everyone`` is not a mention. The result has at most ``most`` characters.
    """
    start, rest = text[: most * 4], text[most * 4 :]
    shown = printable(" ".join(start.split())).replace("@", "(at)")
    shown = _SPECIAL.sub("\N{FULLWIDTH LESS-THAN SIGN}", shown)
    if len(shown) <= most and not rest:
        return shown
    return shown[: most - len(_CUT)].rstrip() + _CUT


class Style:
    """How a format writes data, links and lists; this one is plain text, without markup."""

    longest = 500

    def data(self, text: str, most: int = 0) -> Data:
        """Return external text in a safe form, on one line, cut to ``most`` characters or `longest`."""
        most = most or self.longest
        # What is longer is cut anyway.
        return _data(self, text[: most * 4 + 1], most)

    def safe(self, plain: str) -> str:
        """Return external text that is on one line without what is markup in this format."""
        return plain

    def code(self, value: object) -> str:
        """Return a value set apart and unchanged, such as an id or a name."""
        return value.plain if isinstance(value, Data) else flat(str(value))

    def link(self, url: str) -> str:
        """Return a trusted URL as a link that shows it, also where another format is made of the text."""
        return url

    def named_link(self, label: str, url: str) -> str:
        """Return a line with a trusted URL, which is shown as ``label`` if the format has links."""
        return f"{label}: {url}"

    def text(self, text: str) -> str:
        """Return a sentence of ours, which may contain data, in this format."""
        return text

    def body(self, paragraphs: Sequence[str], lines: Sequence[str], end: str = "") -> str:
        """Return paragraphs, a list, and a last paragraph, which are all in this format; "" is omitted."""
        return "\n\n".join(filter(None, [*paragraphs, "\n".join(lines), end]))


class TitleStyle(Style):
    """A title, which services show as text, Markdown or HTML; no escape suits all of them."""

    longest = 100

    def safe(self, plain: str) -> str:
        return plain.translate(_NOT_IN_TITLES)

    def code(self, value: object) -> str:
        return self.safe(super().code(value))


class MarkdownStyle(Style):
    """Markdown of any service: what would be markup has a backslash before it."""

    def safe(self, plain: str) -> str:
        return _MARKUP.sub(lambda match: f"{match[0][:-1]}\\{match[0][-1]}", plain)

    def code(self, value: object) -> str:
        # Only a backtick is markup in a code span.
        plain = super().code(value).replace("`", "'")
        return f"`{plain}`" if plain else ""

    def link(self, url: str) -> str:
        # An autolink that is converted to plain text still shows the URL.
        return f"<{url}>"

    def named_link(self, label: str, url: str) -> str:
        # A parenthesis would end the address.
        return f"[{label}]({url.replace('(', '%28').replace(')', '%29')})"

    def body(self, paragraphs: Sequence[str], lines: Sequence[str], end: str = "") -> str:
        return super().body(paragraphs, [f"- {line}" for line in lines], end)


class HtmlStyle(Style):
    """HTML: everything not of type ``Markup`` is escaped, data when it is inserted."""

    def code(self, value: object) -> str:
        return Markup("<code>{}</code>").format(super().code(value))

    def link(self, url: str) -> str:
        # The element shows the URL, because an email has a part in plain text, without elements.
        return Markup('<a href="{0}">{0}</a>').format(url)

    def named_link(self, label: str, url: str) -> str:
        return Markup('<a href="{}">{}</a>').format(url, label)

    def text(self, text: str) -> str:
        return Markup.escape(text)

    def body(self, paragraphs: Sequence[str], lines: Sequence[str], end: str = "") -> str:
        # A mail's part in plain text, into which this is converted, would have white space between items.
        items = "".join(f"<li>{line}\n</li>" for line in lines)
        parts = [f"<p>{part}</p>" if part else "" for part in (*paragraphs, end)]
        return "\n".join(filter(None, [*parts[:-1], items and f"<ul>{items}</ul>", parts[-1]]))


@lru_cache(_KEPT_TEXTS)
def _data(style: Style, text: str, most: int) -> Data:
    plain = flat(text, most)
    return Data(style.safe(plain), plain)


TITLE = TitleStyle()
STYLES: dict[TextFormat, Style] = {"markdown": MarkdownStyle(), "text": Style(), "html": HtmlStyle()}


def cleaned(message: M, style: Style, zone: tzinfo = UTC) -> M:
    """Return the message with every text in it made safe in this style, and every time in a zone."""
    cleaned: M = _cleaned(message, style, style.longest, zone)
    return cleaned


def in_zone(at: datetime, zone: tzinfo) -> datetime:
    """Return a time in a zone; the first and the last ones that datetimes can represent stay as they are."""
    try:
        return at.astimezone(zone)
    except (OverflowError, ValueError):
        return at


def _cleaned(value: Any, style: Style, most: int, zone: tzinfo) -> Any:
    if isinstance(value, datetime):
        return in_zone(value, zone)
    if isinstance(value, msgspec.Struct):
        texts = {
            name: _cleaned(field, style, _LONGEST_BY_FIELD.get(name, most), zone)
            for name in value.__struct_fields__
            # Most fields are empty, or not text.
            if (field := getattr(value, name)) and not isinstance(field, _UNCHANGED)
        }
        return msgspec.structs.replace(value, **texts)
    if isinstance(value, list | tuple):
        return tuple(_cleaned(item, style, most, zone) for item in value)
    if isinstance(value, dict):
        return {style.data(str(name)): _cleaned(item, style, most, zone) for name, item in value.items()}
    unchanged = value is None or isinstance(value, _UNCHANGED)
    return value if unchanged else style.data(str(value), most)
