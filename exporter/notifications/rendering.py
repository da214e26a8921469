"""Writing messages: title and body, by the user's templates or built in."""

import logging
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from html import escape
from unicodedata import category

from exporter.config import Templates
from exporter.config.yamlfile import Locate
from exporter.errors import scrubbed
from exporter.model.messages import AnyMessage, Message, Rendered
from exporter.model.severity import highest
from exporter.model.wording import count, relative, utc
from exporter.notifications import engine, templating
from exporter.notifications.context import cleaned, variables
from exporter.notifications.cutting import fit_body, fit_title
from exporter.notifications.samples import is_sample, variants
from exporter.notifications.styles import TitleStyle, flat, style
from exporter.notifications.words import digest_line

_log = logging.getLogger(__name__)
_KEYS = ("notifications", "templates")
# How Jinja2 says that a value is None, or a list empty.
_GAP = re.compile(r"\bNone\b|NoneType|has no element")
_BODY_TAG = re.compile(r"<body\b[^>]*>", re.IGNORECASE)


def check(templates: Templates, locate: Locate) -> None:
    """Compile the user's templates, and try them on messages of every kind.

    ``locate`` makes the error for a key of the configuration file, with file and line.

    Raises:
        ConfigurationError: what ``locate`` made: the syntax is wrong, a name does not exist, or it fails
            with everything that it may use there.
    """
    for key in ("title", "body"):
        try:
            template = _template(key, templates, "https://exporter.example.com/")
            if template is not None:
                _try(key, template)
        except engine.TemplateError as error:
            raise locate((*_KEYS, key), scrubbed(str(error))) from error


def _try(key: str, template: "_Template") -> None:
    """Render all variants; what only fails where Azure leaves something out is warned of, once."""
    gaps = []
    cases = list(variants())
    for (case, _), outcome in zip(
        cases, template.render_all([(message, message.at) for _, message in cases]), strict=True
    ):
        if outcome.problem and not _GAP.search(outcome.problem):
            raise engine.TemplateError(f"{outcome.problem}; tried with {case}")
        if outcome.problem:
            gaps.append(f"{outcome.problem}; tried with {case}")
    if gaps:
        remedy = "such messages go out as the program writes them; put {% if %} around what may be missing"
        where = f"notifications.templates.{key}"
        _log.warning(
            "a template fails where Azure leaves something out",
            extra={"key": where, "reason": scrubbed(gaps[0]), "remedy": remedy},
        )


class Renderer:
    """Writes messages, in one format; used by several threads at once.

    ``exporter_url`` is where people reach the exporter's page, or "".
    """

    def __init__(self, templates: Templates, exporter_url: str = "") -> None:
        self._format = templates.format
        self._style = style(templates.format)
        self._exporter_url = exporter_url
        self._title = _template("title", templates, exporter_url)
        self._body = _template("body", templates, exporter_url)

    def render(
        self, message: AnyMessage, now: datetime, *, limit: int | None = None, late: bool = False
    ) -> Rendered:
        """Write one message as of ``now`` (aware).

        Title and body together have at most ``limit`` characters; a body that was cut says so. The title is
        one line of at most 150. With ``late`` the body begins with when it happened. It raises nothing. The
        user's templates are for events: a message about the watch is written by ours.
        """
        title = self._by_template(self._title, message, now)
        if not title:
            own = variables(message, now, TitleStyle())
            title = f"[{message.severity.upper()}] {own['headline']}"
        title = fit_title(f"(test) {title}" if is_sample(message) else title, limit)
        body = self._by_template(self._body, message, now)
        if not body:
            own = variables(message, now, self._style, self._exporter_url)
            lines = [
                f"{self._style.text(fact.label)}: {self._style.text(fact.text)}" for fact in own["facts"]
            ]
            body = self._style.body(self._style.text(own["explanation"]), lines)
        if late:
            body = self._with_delay(body, message.at, now)
        room = None if limit is None else max(0, limit - len(title))
        return Rendered(title, fit_body(body, room, self._format), self._format, message.severity)

    def digest(
        self, messages: Sequence[AnyMessage], now: datetime, *, limit: int | None = None
    ) -> tuple[Rendered, int]:
        """Write as many of the messages as fit, at least one, into one; return it and how many those are.

        In their order, a line each, and never by the user's templates. Its severity is their highest.

        Raises:
            ValueError: there is no message.
        """
        if not messages:
            raise ValueError("a digest of no messages")
        who = next((m.instance for m in reversed(messages) if m.instance), None)
        name = self._style.data(who) if who else "a VM whose name is not known yet"
        first = f"{utc(messages[0].at)}, {relative(messages[0].at, now)}"
        head = f"Seen by {name}, the first at {first}; these messages could not be delivered before."
        lines: list[str] = []
        title = body = ""
        for number, message in enumerate(messages, start=1):
            lines.append(self._style.text(digest_line(cleaned(message, self._style), now)))
            longer = fit_title(_digest_title(messages[:number], who), limit)
            all_of_it = self._style.body(self._style.text(head), lines)
            if title and limit is not None and len(longer) + len(all_of_it) > limit:
                lines.pop()
                break
            title, body = longer, all_of_it
        room = None if limit is None else max(0, limit - len(title))
        severity = highest([message.severity for message in messages[: len(lines)]])
        return Rendered(title, fit_body(body, room, self._format), self._format, severity), len(lines)

    def _by_template(self, template: "_Template | None", message: AnyMessage, now: datetime) -> str:
        """Return what the user's template makes of a message; "" where there is none, or it fails."""
        if template is None or not isinstance(message, Message):
            return ""
        try:
            return template.render(message, now)
        except engine.TemplateError as error:
            template.warn(str(error), message)
            return ""

    def _with_delay(self, body: str, at: datetime, now: datetime) -> str:
        words = f"This happened at {utc(at)}, {relative(at, now)}; the message could not be delivered before."
        if self._format != "html":
            return f"{words}\n\n{body}"
        found = _BODY_TAG.search(body)
        start = found.end() if found else 0
        return f"{body[:start]}<p>{escape(words)}</p>\n{body[start:]}"


def _digest_title(messages: Sequence[AnyMessage], instance: str | None) -> str:
    tally = Counter(message.transition.value for message in messages)
    parts = ", ".join(f"{number} {transition}" for transition, number in tally.items())
    who = TitleStyle().data(instance) if instance else "a VM (name unknown)"
    severity = highest([message.severity for message in messages])
    return f"[{severity.upper()}] {count(len(messages), 'message')} from {who}: {parts}"


class _Template:
    """The title or the body, as the user's template writes it."""

    def __init__(self, key: str, templates: Templates, exporter_url: str) -> None:
        self._key = key
        self._templates = templates
        self._exporter_url = exporter_url
        self._warned = False

    def render(self, message: Message, now: datetime) -> str:
        """Return the text; `engine.TemplateError` where it fails."""
        (outcome,) = self.render_all([(message, now)])
        if outcome.problem:
            raise engine.TemplateError(outcome.problem)
        return outcome.text if self._key == "title" else _without_controls(outcome.text)

    def render_all(self, cases: Sequence[templating.Case]) -> list[templating.Outcome]:
        """Return what it makes of each; `engine.TemplateError` where it fails as a whole."""
        return templating.render(self._key, self._templates, self._exporter_url, cases)

    def warn(self, reason: str, message: Message) -> None:
        """Log a failure, the first time."""
        if self._warned:
            return
        self._warned = True
        _log.warning(
            "a template fails; messages go out as the program writes them",
            extra={
                "key": f"notifications.templates.{self._key}",
                "reason": flat(reason),
                "event_id": message.event.id,
                "transition": message.transition.value,
            },
        )


def _template(key: str, templates: Templates, exporter_url: str) -> _Template | None:
    return _Template(key, templates, exporter_url) if getattr(templates, key).strip() else None


def _without_controls(text: str) -> str:
    """Keep the template's own lines and, of what cannot be seen, what its emoji are joined with."""
    return "\n".join(
        "".join(" " if category(letter) in ("Cc", "Cs") else letter for letter in line)
        for line in text.splitlines()
    )
