"""Rendering of messages: title and body, by the user's templates or ours, cut to the service's limit."""

import threading
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from exporter.config import Templates
from exporter.model.messages import AnyMessage, Message, Rendered, Severity
from exporter.model.wording import count, relative, utc
from exporter.notifications import words
from exporter.notifications.facts import digest_line, facts
from exporter.notifications.fitting import BODY_TAG, fit_body, fit_title
from exporter.notifications.limits import Limits
from exporter.notifications.protocol import Send
from exporter.notifications.samples import is_sample
from exporter.notifications.styles import STYLES, TITLE, cleaned

if TYPE_CHECKING:
    from exporter.notifications.templates import TemplateThread

# A message that is older than this contains the time of its transition.
LATE_SECONDS = 5.0
_FAILED = "; it could not be delivered before"
# A text that was rendered for one target is used for others that get the message within the same 5 s.
_KEPT_TEXTS = 64
_KEPT_SECONDS = 5.0


class Text(NamedTuple):
    """A message in words, of any length; ``remarks`` are the failures of the user's templates."""

    title: str
    body: str
    remarks: dict[str, str]


class Renderer:
    """Renders messages; thread-safe."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # A template that loops must not hold up messages without it, so each set has a lock of its own.
        self._kept: dict[Templates, tuple[threading.Lock, dict[object, Text]]] = {}

    @cached_property
    def templates(self) -> "TemplateThread":
        """The thread of the user's templates; Jinja2 is imported with the first of them."""
        from exporter.notifications.templates import TemplateThread

        return TemplateThread(self._limits)

    def render(
        self, request: Send, limit: int | None = None, *, with_facts: bool = False
    ) -> tuple[Rendered, int, dict[str, str]]:
        """Return the message of a request, the number of messages in it, and the failures of templates.

        Title and body together have at most ``limit`` characters; a body that was cut ends with a note. The
        user's templates are for events; digests and messages about the watch always use ours. The facts are
        added ``with_facts``, as few services have fields for them.
        """
        if request.is_digest:
            return (*_digest(request, limit), {})
        message = request.messages[-1]
        text = self._text(request, message)
        rendered = _fitted(request, text.title, text.body, message.severity, limit)
        rendered = replace(
            rendered,
            traceparent=request.traceparent,
            incident=message.incident,
            resolves=message.resolves,
            only_closes=message.only_closes,
            facts=_plain_facts(request, message) if with_facts else (),
            link=request.exporter_url or message.vm.portal_url,
            source=message.instance or "",
        )
        return rendered, len(request.messages), text.remarks

    def _text(self, request: Send, message: AnyMessage) -> Text:
        content = repr(replace(message, target="", incident="", only_closes=False))
        settings = (request.exporter_url, request.marker, request.is_plain, request.failed)
        key = (content, settings, request.now.timestamp() // _KEPT_SECONDS)
        lock, texts = self._kept.setdefault(request.templates, (threading.Lock(), {}))
        with lock:
            if key not in texts:
                texts[key] = self._written(request, message)
                if len(texts) > _KEPT_TEXTS:
                    del texts[next(iter(texts))]
            return texts[key]

    def _written(self, request: Send, message: AnyMessage) -> Text:
        now, style = request.now, STYLES[request.templates.format]
        remarks: dict[str, str] = {}
        title, body = (
            self._by_template(key, request, message, remarks) if isinstance(message, Message) else ""
            for key in ("title", "body")
        )
        if not title:
            room = words.TITLE_LENGTH - len(_marker(request))
            title = f"[{message.severity.upper()}] {words.headline(cleaned(message, TITLE), now, room)}"
        if not body:
            shown = cleaned(message, style)
            found = facts(shown, now, style, **_urls(request, message))
            lines = [f"{style.text(fact.label)}: {style.text(fact.text)}" for fact in found]
            body = style.body(style.text(words.explanation(shown)), lines)
        if (now - message.at).total_seconds() > LATE_SECONDS:
            body = _with_delay(body, message.at, request)
        return Text(title, body, remarks)

    def _by_template(self, key: str, request: Send, message: Message, remarks: dict[str, str]) -> str:
        """Return the text of the user's template; "" if there is none, or it fails."""
        templates = request.templates
        if request.is_plain or not getattr(templates, key).strip():
            return ""
        from exporter.notifications.templates import TemplateError

        try:
            return self.templates.render(key, templates, message, request.now, request.exporter_url)
        except TemplateError as error:
            remarks[key] = str(error)
            return ""


def _urls(request: Send, message: AnyMessage) -> dict[str, str]:
    return {"portal_url": message.vm.portal_url, "exporter_url": request.exporter_url}


def _plain_facts(request: Send, message: AnyMessage) -> tuple[tuple[str, str], ...]:
    style = STYLES["text"]
    return tuple(facts(cleaned(message, style), request.now, style, **_urls(request, message)))


def _marker(request: Send) -> str:
    return ("(test) " if is_sample(request.messages[-1]) else "") + request.marker


def _with_delay(body: str, at: datetime, request: Send) -> str:
    sentence = f"This happened at {utc(at)}, {relative(at, request.now)}{_FAILED * request.failed}."
    if request.templates.format != "html":
        return f"{sentence}\n\n{body}"
    found = BODY_TAG.search(body)
    start = found.end() if found else 0
    return f"{body[:start]}<p>{escape(sentence)}</p>\n{body[start:]}"


def _fitted(request: Send, title: str, body: str, severity: Severity, limit: int | None) -> Rendered:
    title = fit_title(_marker(request) + title, limit)
    room = None if limit is None else max(0, limit - len(title))
    text_format = request.templates.format
    return Rendered(title, fit_body(body, room, text_format), text_format, severity)


def _digest(request: Send, limit: int | None) -> tuple[Rendered, int]:
    """Render as many of the messages as fit, at least one, as one; return it and their number.

    They are in their order, a line each. The severity is the highest of theirs.
    """
    messages, now, style = request.messages, request.now, STYLES[request.templates.format]
    who = next((m.instance for m in reversed(messages) if m.instance), None)
    name = style.data(who) if who else "a VM whose name is not known yet"
    first = f"{utc(messages[0].at)}, {relative(messages[0].at, now)}"
    head = style.text(f"Seen by {name}, the first at {first}{_FAILED * request.failed}.")
    grades = tuple(Severity)
    highest = [grades[most] for most in accumulate((one.severity.weight for one in messages), max)]
    lines: list[str] = []

    def title(number: int) -> str:
        return _digest_title(messages[:number], highest[number - 1], who, _marker(request))

    for number, message in enumerate(messages, start=1):
        lines.append(style.text(digest_line(cleaned(message, style), now)))
        if number > 1 and limit is not None and len(title(number)) + len(style.body(head, lines)) > limit:
            lines.pop()
            break
    number = len(lines)
    rendered = _fitted(request, title(number), style.body(head, lines), highest[number - 1], limit)
    return rendered, number


def _digest_title(
    messages: Sequence[AnyMessage], severity: Severity, instance: str | None, marker: str
) -> str:
    """Return how many messages there are, and of which transitions as far as there is room."""
    who = TITLE.data(instance) if instance else "a VM (name unknown)"
    tally = Counter(message.transition.value.replace("_", " ") for message in messages)
    start, parts = f"[{severity.upper()}] {count(len(messages), 'message')} from {who}", ""
    for position, (transition, number) in enumerate(tally.items()):
        longer = f"{parts}{', ' if parts else ': '}{number} {transition}"
        rest = ", ..." if position + 1 < len(tally) else ""
        if len(marker) + len(start) + len(longer) + len(rest) > words.TITLE_LENGTH:
            return start + (f"{parts}, ..." if parts else "")
        parts = longer
    return start + parts
