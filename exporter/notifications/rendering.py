"""Rendering of messages: title and body, by the user's templates or ours, cut to the service's limit."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from html import escape
from html.parser import HTMLParser
from itertools import accumulate

from exporter.config import Templates
from exporter.model.messages import AnyMessage, Message, Rendered, Severity, TextFormat
from exporter.model.wording import count, relative, utc
from exporter.notifications import words
from exporter.notifications.styles import STYLES, TITLE, cleaned
from exporter.notifications.templating import UserTemplate, is_sample

CUT = "(The rest was cut, because the service accepts no longer messages.)"
_LONGEST_TITLE = 150
_BODY_TAG = re.compile(r"<body\b[^>]*>", re.IGNORECASE)
_FENCE = re.compile(r"^ {0,3}```", re.MULTILINE)
_CLOSING_FENCE = "\n```"
_SKIPPED = ("head", "script", "style", "template")
_BLOCKS = ("p", "div", "li", "ul", "ol", "tr", "br", "h1", "h2", "h3", "h4", "table", "pre", "hr")


class Renderer:
    """Renders messages in one format; thread-safe.

    ``exporter_url`` is the URL of the exporter's page, or "".
    """

    def __init__(self, templates: Templates, exporter_url: str = "") -> None:
        self._format = templates.format
        self._style = STYLES[templates.format]
        self._exporter_url = exporter_url
        self._title = UserTemplate("title", templates, exporter_url)
        self._body = UserTemplate("body", templates, exporter_url)

    def render(
        self, message: AnyMessage, now: datetime, *, limit: int | None = None, late: bool = False
    ) -> Rendered:
        """Render one message at ``now`` (aware); never raises.

        Title and body together have at most ``limit`` characters; a body that was cut ends with a note. The
        title is one line of at most 150. With ``late`` the body begins with the time of the transition. The
        user's templates are for events; messages about the watch always use ours.
        """
        title = body = ""
        if isinstance(message, Message):
            title, body = self._title.render(message, now), self._body.render(message, now)
        title = title or f"[{message.severity.upper()}] {words.headline(cleaned(message, TITLE), now)}"
        body = body or self._own_body(message, now)
        if late:
            body = self._with_delay(body, message.at, now)
        return self._fitted(f"(test) {title}" if is_sample(message) else title, body, message.severity, limit)

    def digest(
        self, messages: Sequence[AnyMessage], now: datetime, *, limit: int | None = None
    ) -> tuple[Rendered, int]:
        """Render as many of the messages as fit, at least one, as one; return it and their number.

        They are in their order, a line each, and never use the user's templates. Its severity is their
        highest.

        Raises:
            ValueError: there is no message.
        """
        if not messages:
            raise ValueError("a digest of no messages")
        who = next((m.instance for m in reversed(messages) if m.instance), None)
        name = self._style.data(who) if who else "a VM whose name is not known yet"
        first = f"{utc(messages[0].at)}, {relative(messages[0].at, now)}"
        head = self._style.text(
            f"Seen by {name}, the first at {first}; these messages could not be delivered before."
        )
        highest = list(accumulate((message.severity for message in messages), _higher))
        lines: list[str] = []
        for number, message in enumerate(messages, start=1):
            lines.append(self._style.text(words.digest_line(cleaned(message, self._style), now)))
            if number > 1 and limit is not None:
                title = fit_title(_digest_title(messages[:number], highest[number - 1], who), limit)
                if len(title) + len(self._style.body(head, lines)) > limit:
                    lines.pop()
                    break
        severity = highest[len(lines) - 1]
        title = _digest_title(messages[: len(lines)], severity, who)
        return self._fitted(title, self._style.body(head, lines), severity, limit), len(lines)

    def _own_body(self, message: AnyMessage, now: datetime) -> str:
        style, shown = self._style, cleaned(message, self._style)
        facts = words.facts(
            shown, now, style, portal_url=message.vm.portal_url, exporter_url=self._exporter_url
        )
        lines = [f"{style.text(fact.label)}: {style.text(fact.text)}" for fact in facts]
        return style.body(style.text(words.explanation(shown)), lines)

    def _with_delay(self, body: str, at: datetime, now: datetime) -> str:
        sentence = (
            f"This happened at {utc(at)}, {relative(at, now)}; the message could not be delivered before."
        )
        if self._format != "html":
            return f"{sentence}\n\n{body}"
        found = _BODY_TAG.search(body)
        start = found.end() if found else 0
        return f"{body[:start]}<p>{escape(sentence)}</p>\n{body[start:]}"

    def _fitted(self, title: str, body: str, severity: Severity, limit: int | None) -> Rendered:
        title = fit_title(title, limit)
        room = None if limit is None else max(0, limit - len(title))
        return Rendered(title, fit_body(body, room, self._format), self._format, severity)


def _digest_title(messages: Sequence[AnyMessage], severity: Severity, instance: str | None) -> str:
    tally = Counter(message.transition.value for message in messages)
    parts = ", ".join(f"{number} {transition}" for transition, number in tally.items())
    who = TITLE.data(instance) if instance else "a VM (name unknown)"
    return f"[{severity.upper()}] {count(len(messages), 'message')} from {who}: {parts}"


def _higher(one: Severity, other: Severity) -> Severity:
    return max(one, other, key=lambda severity: severity.weight)


def fit_title(title: str, limit: int | None) -> str:
    """Cut a one-line title to 150 characters, or to two thirds of ``limit`` if that is less."""
    most = _LONGEST_TITLE if limit is None else max(1, min(_LONGEST_TITLE, limit * 2 // 3))
    if len(title) <= most:
        return title
    return title[: most - 3].rstrip() + "..." if most > 3 else title[:most]


def fit_body(body: str, room: int | None, text_format: TextFormat) -> str:
    """Cut a body to ``room`` characters, with a note as the last line if there is room for it."""
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
    """Close an open fenced block, and remove an open code span."""
    if len(_FENCE.findall(kept)) % 2:
        cut = kept[: max(room - len(_CLOSING_FENCE), 0)]
        if len(_FENCE.findall(cut)) % 2:
            return cut.rstrip("`") + _CLOSING_FENCE
        kept = cut
    if kept.count("`") % 2:
        kept = kept[: kept.rindex("`")].rstrip("`")
    return kept


def _fit_html(body: str, room: int) -> str:
    """Return as many paragraphs of plain text as fit, because HTML must not be cut."""
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
