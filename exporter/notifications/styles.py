"""Text from outside, made safe for a format: no markup, no mentions, no control characters.

Nothing is escaped by backslashes, because a service that shows plain text would show them.
"""

import re
from collections.abc import Sequence
from typing import Protocol

from exporter.model.messages import TextFormat
from exporter.model.wording import printable

LONGEST = 500
_CUT = "..."
# Slack reads <!channel>, <#C1> and <https://a|b> even inside code; Discord reads <t:1> and the like.
_SPECIAL = re.compile(r"<(?=[!#]|[A-Za-z]+:)")
# To Markdown these are markup wherever they stand. Their full-width forms look alike and mean nothing to it.
_MARKUP = str.maketrans({"`": "'"} | {mark: chr(ord(mark) + 0xFEE0) for mark in "\\*[]<>~|#"})
_ENTITY = re.compile(r"&(?=#?\w)")
# An underscore inside a word means nothing; emphasis takes one before a word and one after. VM names have
# no such pair, but old ones begin with one: so only the closing one is replaced.
_OPENING = re.compile(r"(?<![A-Za-z0-9_])_|\s")
_CLOSING = re.compile(r"_(?=_*(?![A-Za-z0-9_]))")
_LIST = re.compile(r"^(?:[-+=](?=[\s=-]|$)|\d+[.)](?=\s|$))")


class Data(str):
    """Text that came from outside, safe in its format as it is."""

    __slots__ = ("_plain",)
    _plain: str

    @classmethod
    def of(cls, safe: str, plain: str) -> "Data":
        """Keep beside the safe form the one that goes into a code span."""
        made = cls(safe)
        made._plain = plain
        return made

    @property
    def plain(self) -> str:
        """The text with its markup characters, flat and without mentions."""
        return self._plain


class Style(Protocol):
    """How a format writes data, links and lists."""

    def data(self, text: str, most: int = LONGEST) -> str:
        """Return text from outside in a safe form, cut to ``most`` characters."""
        ...

    def code(self, value: object) -> str:
        """Return a value set apart and unchanged, such as an id or a name."""
        ...

    def link(self, url: str) -> str:
        """Return a URL of our own so that it can be followed."""
        ...

    def text(self, text: str) -> str:
        """Return a sentence of our own, which may contain data, in this format."""
        ...

    def body(self, head: str, lines: Sequence[str]) -> str:
        """Return a paragraph and a list, both of which are in this format already."""
        ...


def flat(text: str, most: int = LONGEST) -> str:
    """Return the text on one line, without control, bidirectional or invisible characters and mentions.

    White space becomes a space, invisible characters become ``?``, and ``@`` becomes ``(at)``, so that a text
    that says ``@everyone`` mentions nobody. The result has at most ``most`` characters.
    """
    shown = printable(" ".join(text[: most * 4].split())).replace("@", "(at)")
    shown = _SPECIAL.sub("\N{FULLWIDTH LESS-THAN SIGN}", shown)
    if len(shown) <= most and len(text) <= most * 4:
        return shown
    return shown[: most - len(_CUT)].rstrip() + _CUT


def unmarked(text: str) -> str:
    """Replace what Markdown or HTML would treat as markup; names of VMs and GUIDs are unchanged."""
    text = _ENTITY.sub("\N{FULLWIDTH AMPERSAND}", text.translate(_MARKUP))
    if _OPENING.search(text):
        text = _CLOSING.sub("\N{FULLWIDTH LOW LINE}", text)
    return _LIST.sub(lambda found: found[0][:-1] + chr(ord(found[0][-1]) + 0xFEE0), text)


class PlainStyle:
    """Plain text: nothing is markup."""

    def data(self, text: str, most: int = LONGEST) -> str:
        """Return it on one line."""
        return Data.of(found := flat(text, most), found)

    def code(self, value: object) -> str:
        """Return it unchanged."""
        return _plain(value)

    def link(self, url: str) -> str:
        """Return it unchanged."""
        return url

    def text(self, text: str) -> str:
        """Return it unchanged."""
        return text

    def body(self, head: str, lines: Sequence[str]) -> str:
        """Return each on a line of its own."""
        return "\n".join([head, "", *lines])


class TitleStyle(PlainStyle):
    """A title: one service shows it as text, the next reads it as Markdown, a third as HTML."""

    def data(self, text: str, most: int = 100) -> str:
        """Return it on one line, without what any of them would treat as markup."""
        return Data.of(found := unmarked(flat(text, most)), found)

    def code(self, value: object) -> str:
        """Return it without markup."""
        return unmarked(_plain(value))


class MarkdownStyle(PlainStyle):
    """Markdown of any service."""

    def data(self, text: str, most: int = LONGEST) -> str:
        """Return it on one line, and replace what would be markup outside a code span."""
        plain = flat(text, most)
        return Data.of(unmarked(plain), plain)

    def code(self, value: object) -> str:
        """Return a code span, in which only a backtick has a meaning."""
        plain = _plain(value).replace("`", "'")
        return f"`{plain}`" if plain else ""

    def link(self, url: str) -> str:
        """Return an autolink: converted to plain text, it still shows the URL."""
        return f"<{url}>"

    def body(self, head: str, lines: Sequence[str]) -> str:
        """Return a paragraph and a list."""
        return "\n".join([head, "", *(f"- {line}" for line in lines)])


class HtmlStyle:
    """HTML: everything is escaped that is not of type ``Markup``."""

    def __init__(self) -> None:
        from markupsafe import Markup

        self._markup = Markup

    def data(self, text: str, most: int = LONGEST) -> str:
        """Return it on one line; it is escaped where it is inserted."""
        return Data.of(found := flat(text, most), found)

    def code(self, value: object) -> str:
        """Return a ``code`` element."""
        return self._markup("<code>{}</code>").format(_plain(value))

    def link(self, url: str) -> str:
        """Return an ``a`` element that shows the URL: mail has a part in plain text, without elements."""
        return self._markup('<a href="{0}">{0}</a>').format(url)

    def text(self, text: str) -> str:
        """Escape it."""
        return self._markup.escape(text)

    def body(self, head: str, lines: Sequence[str]) -> str:
        """Return a paragraph and a list."""
        items = "".join(f"<li>{line}</li>\n" for line in lines)
        return f"<p>{head}</p>\n<ul>\n{items}</ul>"


def style(text_format: TextFormat) -> Style:
    """Return the style of a format."""
    if text_format == "html":
        return HtmlStyle()
    return MarkdownStyle() if text_format == "markdown" else PlainStyle()


def _plain(value: object) -> str:
    return value.plain if isinstance(value, Data) else flat(str(value))
