"""What Azure writes, made fit for a message: always data, never markup, a mention or a control character.

Nothing is escaped by backslashes: a service that shows plain text would show them.
"""

import re
from typing import Protocol

from exporter.commands.table import printable
from exporter.model.messages import TextFormat

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
    """How a format writes what is not the template's own."""

    def data(self, text: str, most: int = LONGEST) -> str:
        """Make text from outside safe, at most ``most`` characters of it."""
        ...

    def code(self, value: object) -> str:
        """Set a value apart, as it is: an id, a name, a quotation."""
        ...

    def phrase(self, form: str, *values: object) -> str:
        """Put values into a sentence of ours, whose form is as for ``str.format``."""
        ...

    def join(self, pieces: list[str]) -> str:
        """Enumerate pieces that are in this format already."""
        ...


def flat(text: str, most: int = LONGEST) -> str:
    """Make one line of it, without control, bidirectional or invisible characters, mentions, or great length.

    Line breaks and other white space become a space; what cannot be seen becomes ``?``; ``@`` becomes
    ``(at)``, so that nobody is called by a text that says ``@everyone``.
    """
    shown = printable(" ".join(text[: most * 4].split())).replace("@", "(at)")
    shown = _SPECIAL.sub("\N{FULLWIDTH LESS-THAN SIGN}", shown)
    if len(shown) <= most and len(text) <= most * 4:
        return shown
    return shown[: most - len(_CUT)].rstrip() + _CUT


def unmarked(text: str) -> str:
    """Take the meaning from all that Markdown, or HTML, would take for markup; names and GUIDs stay as is."""
    text = _ENTITY.sub("\N{FULLWIDTH AMPERSAND}", text.translate(_MARKUP))
    if _OPENING.search(text):
        text = _CLOSING.sub("\N{FULLWIDTH LOW LINE}", text)
    return _LIST.sub(lambda found: found[0][:-1] + chr(ord(found[0][-1]) + 0xFEE0), text)


class PlainStyle:
    """Text: nothing is markup."""

    def data(self, text: str, most: int = LONGEST) -> str:
        """Flatten it."""
        return Data.of(found := flat(text, most), found)

    def code(self, value: object) -> str:
        """Write it as it is."""
        return _plain(value)

    def phrase(self, form: str, *values: object) -> str:
        """Fill it in."""
        return form.format(*values)

    def join(self, pieces: list[str]) -> str:
        """Separate them by commas."""
        return ", ".join(pieces)


class TitleStyle(PlainStyle):
    """A title: one service shows it as text, the next reads it as Markdown, a third as HTML."""

    def data(self, text: str, most: int = 100) -> str:
        """Flatten it, and leave nothing that could be markup to any of them."""
        return Data.of(found := unmarked(flat(text, most)), found)

    def code(self, value: object) -> str:
        """Write it as it is, without markup."""
        return unmarked(_plain(value))


class MarkdownStyle(PlainStyle):
    """Markdown of any service: code spans where data stand as they are."""

    def data(self, text: str, most: int = LONGEST) -> str:
        """Flatten it, and replace what would be markup outside a code span."""
        plain = flat(text, most)
        return Data.of(unmarked(plain), plain)

    def code(self, value: object) -> str:
        """Make a code span, in which nothing but a backtick means anything."""
        plain = _plain(value).replace("`", "'")
        return f"`{plain}`" if plain else ""


class HtmlStyle:
    """HTML: what is not marked as such is escaped."""

    def __init__(self) -> None:
        from markupsafe import Markup

        self._markup = Markup

    def data(self, text: str, most: int = LONGEST) -> str:
        """Flatten it; it is escaped where it is put in."""
        return Data.of(found := flat(text, most), found)

    def code(self, value: object) -> str:
        """Make a ``code`` element."""
        return self._markup("<code>{}</code>").format(_plain(value))

    def phrase(self, form: str, *values: object) -> str:
        """Fill it in, escaped."""
        return self._markup(form).format(*values)

    def join(self, pieces: list[str]) -> str:
        """Separate them by commas."""
        return self._markup(", ").join(pieces)


def style(text_format: TextFormat) -> Style:
    """Return the style of a format."""
    if text_format == "html":
        return HtmlStyle()
    return MarkdownStyle() if text_format == "markdown" else PlainStyle()


def _plain(value: object) -> str:
    return value.plain if isinstance(value, Data) else flat(str(value))
