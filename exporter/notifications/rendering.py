"""From a message's facts to the words that go out: our templates, or the user's."""

import logging
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from html import escape
from unicodedata import category

from exporter.commands.table import printable
from exporter.config import Templates
from exporter.config.yamlfile import Locate
from exporter.model.messages import Message, Rendered
from exporter.notifications import engine
from exporter.notifications.context import variables, weight
from exporter.notifications.cutting import fit_body, fit_title
from exporter.notifications.digest import digest
from exporter.notifications.samples import variants
from exporter.notifications.spans import relative, utc
from exporter.notifications.styles import Style, TitleStyle, flat, style

_log = logging.getLogger(__name__)
_KEYS = ("notifications", "templates")
# How Jinja2 says that a value is None, or a list empty.
_GAP = re.compile(r"\bNone\b|NoneType|has no element")
_BODY_TAG = re.compile(r"<body\b[^>]*>", re.IGNORECASE)


def check(templates: Templates, locate: Locate) -> None:
    """Compile the user's templates, and try them on messages of every kind.

    ``locate`` makes the error for a key of the configuration file, with file and line. Without templates of
    the user's, Jinja2 is not even imported.

    Raises:
        ConfigurationError: what ``locate`` made: the syntax is wrong, a name does not exist, or it fails
            with everything that it may use there.
    """
    for key, part in (("title", _title_part), ("body", _body_part)):
        text = getattr(templates, key)
        if not text.strip():
            continue
        try:
            _try(key, part(templates, text))
        except engine.TemplateError as error:
            raise locate((*_KEYS, key), str(error)) from error


def _try(key: str, part: "_Part") -> None:
    """Render all variants; what only fails where Azure leaves something out is warned of, once."""
    gaps = []
    for case, message in variants():
        try:
            part.render(message, message.at)
        except engine.TemplateError as error:
            if not _GAP.search(str(error)):
                raise engine.TemplateError(f"{error}; tried with {case}") from error
            gaps.append(f"{error}; tried with {case}")
    if gaps:
        remedy = "such messages go out as the program writes them; put {% if %} around what may be missing"
        where = f"notifications.templates.{key}"
        _log.warning(
            "a template fails where Azure leaves something out",
            extra={"key": where, "reason": gaps[0], "remedy": remedy},
        )


class Renderer:
    """Writes messages, in one format; used by several threads at once.

    Raises:
        TemplateError: a template of the user's does not compile; `check` tells so beforehand.
    """

    def __init__(self, templates: Templates) -> None:
        self._format = templates.format
        self._style = style(templates.format)
        self._title = _Fallback("title", templates, _title_part)
        self._body = _Fallback("body", templates, _body_part)

    def render(
        self, message: Message, now: datetime, *, limit: int | None = None, late: bool = False
    ) -> Rendered:
        """Write one message as of ``now`` (aware).

        Title and body together have at most ``limit`` characters; a body that was cut says so. The title is
        one line of at most 150. With ``late`` the body begins with when it happened. It raises nothing.
        """
        title = fit_title(self._title.render(message, now), limit)
        body = self._body.render(message, now)
        if late:
            body = self._with_delay(body, message.at, now)
        room = None if limit is None else max(0, limit - len(title))
        return Rendered(title, fit_body(body, room, self._format), self._format, weight(message))

    def digest(
        self, messages: Sequence[Message], now: datetime, *, limit: int | None = None
    ) -> tuple[Rendered, int]:
        """Write as many of the messages as fit, at least one, into one; return it and how many those are.

        In their order, a line each, and never by the user's templates. Its severity is their highest.

        Raises:
            ValueError: there is no message.
        """
        if not messages:
            raise ValueError("a digest of no messages")
        return digest(messages, now, self._style, self._format, limit=limit)

    def _with_delay(self, body: str, at: datetime, now: datetime) -> str:
        words = f"This happened at {utc(at)}, {relative(at, now)}; the message could not be delivered before."
        if self._format != "html":
            return f"{words}\n\n{body}"
        found = _BODY_TAG.search(body)
        start = found.end() if found else 0
        return f"{body[:start]}<p>{escape(words)}</p>\n{body[start:]}"


class _Part:
    """The title or the body, as one template writes it."""

    def __init__(self, text: str, part_style: Style, *, html: bool = False, one_line: bool = False) -> None:
        self._style = part_style
        self._one_line = one_line
        self._template = engine.Engine(part_style, html=html).compile(text)

    def render(self, message: Message, now: datetime) -> str:
        """Return the text; `engine.TemplateError` where it fails."""
        found = self._template.render(variables(message, now, self._style))
        return printable(" ".join(found.split())) if self._one_line else _without_controls(found)


class _Fallback:
    """The user's template where it works, and ours where there is none or it fails."""

    def __init__(self, key: str, templates: Templates, make: Callable[[Templates, str], _Part]) -> None:
        name = "title.txt" if key == "title" else f"body.{templates.format}"
        chosen = getattr(templates, key)
        self._key = key
        self._ours = make(templates, engine.default(name))
        self._theirs = make(templates, chosen) if chosen.strip() else None
        self._told = False

    def render(self, message: Message, now: datetime) -> str:
        """Return the text."""
        if self._theirs is not None:
            try:
                found = self._theirs.render(message, now)
            except engine.TemplateError as error:
                self._tell(str(error), message)
            else:
                if found:
                    return found
        return self._ours.render(message, now)

    def _tell(self, reason: str, message: Message) -> None:
        if self._told:
            return
        self._told = True
        _log.warning(
            "a template fails; messages go out as the program writes them",
            extra={
                "key": f"notifications.templates.{self._key}",
                "reason": flat(reason),
                "event_id": message.event.id,
                "transition": message.transition.value,
            },
        )


def _title_part(_templates: Templates, text: str) -> _Part:
    return _Part(text, TitleStyle(), one_line=True)


def _body_part(templates: Templates, text: str) -> _Part:
    return _Part(text, style(templates.format), html=templates.format == "html")


def _without_controls(text: str) -> str:
    """Keep the template's own lines and, of what cannot be seen, what its emoji are joined with."""
    return "\n".join(
        "".join(" " if category(letter) in ("Cc", "Cs") else letter for letter in line)
        for line in text.splitlines()
    )
