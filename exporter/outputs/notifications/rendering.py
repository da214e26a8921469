"""Rendering of messages: title and body, by the user's templates or ours, cut to the service's limit."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo
from functools import partial
from html import escape
from itertools import accumulate
from typing import NamedTuple
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from exporter.config import Templates
from exporter.model.messages import AnyMessage, Message, Rendered, Severity, TextFormat
from exporter.model.wording import count, relative, stamp
from exporter.outputs.notifications import words
from exporter.outputs.notifications.facts import digest_line, facts
from exporter.outputs.notifications.fitting import BODY_TAG, Body, Room, fit_body, fit_facts, fit_title
from exporter.outputs.notifications.protocol import Checked, Rendering, Send
from exporter.outputs.notifications.samples import is_sample
from exporter.outputs.notifications.styles import STYLES, TITLE, Style, cleaned, in_zone

# A message that is older than this contains the time of its transition.
LATE_SECONDS = 5.0
_FAILED = "; it could not be delivered before"


class Text(NamedTuple):
    """A message in words, of any length; ``remarks`` are the failures of the user's templates.

    ``body`` is written by the user's template, or in parts.
    """

    title: str
    body: Body | str
    remarks: dict[str, str]


class Renderer:
    """Renders messages; ``announce`` is told before a template of the user is used."""

    def __init__(self, announce: Callable[[Rendering], None] = lambda _: None) -> None:
        self._announce = announce

    def check(self, key: str, templates: Templates) -> Checked:
        """Compile the template ``title`` or ``body``, and render it for messages of every kind."""
        # With Jinja2.
        from exporter.outputs.notifications.templates import check

        return check(key, templates)

    def render(
        self, request: Send, room: Room | None = None, *, with_facts: bool = False
    ) -> tuple[Rendered, int, dict[str, str]]:
        """Return the message of a request, the number of messages in it, and the failures of templates.

        It fits the ``room``, for which our text may get another format; one that is still too long is
        shortened, and says so. The user's templates are for events; digests and messages about the watch
        always use ours. The facts are added ``with_facts``, as few services have fields for them.
        """
        request = replace(request, now=in_zone(request.now, _zone(request.timezone)))
        if request.is_digest:
            return (*_digest(request, room), {})
        message = request.messages[-1]
        text = self._written(request, message)
        for text_format in room.formats if room else ():
            if isinstance(text.body, str) or _is_whole(request, text, room):
                break
            request = replace(request, templates=replace(request.templates, format=text_format))
            text = self._written(request, message)
        rendered = replace(
            _fitted(request, text.title, text.body, message.severity, room),
            traceparent=request.traceparent,
            incident=message.incident,
            resolves=message.resolves,
            only_closes=message.only_closes,
            facts=_plain_facts(request, message) if with_facts else (),
            link=request.exporter_url or message.vm.portal_url,
            source=message.instance or "",
        )
        return rendered, len(request.messages), text.remarks

    def _written(self, request: Send, message: AnyMessage) -> Text:
        now, style, zone = request.now, STYLES[request.templates.format], _zone(request.timezone)
        remarks: dict[str, str] = {}
        title, own = (
            self._by_template(key, request, message, remarks) if isinstance(message, Message) else ""
            for key in ("title", "body")
        )
        if not title:
            room = words.TITLE_LENGTH - len(_marker(request))
            title = f"[{message.severity.upper()}] {words.headline(message, now, room)}"
        delay = _delay(request, message.at)
        if own:
            return Text(title, _with_delay(own, delay, request.templates.format), remarks)
        shown = cleaned(message, style, zone)
        found = facts(shown, now, style, **_urls(request, message))
        return Text(title, Body(delay, words.explanation(shown), found), remarks)

    def _by_template(self, key: str, request: Send, message: Message, remarks: dict[str, str]) -> str:
        """Return the text of the user's template; "" if there is none, or it fails."""
        templates = request.templates
        if not getattr(templates, key).strip():
            return ""
        from exporter.outputs.notifications.templates import TemplateError, render

        self._announce(Rendering(key))
        try:
            return render(key, templates, message, request.now, request.exporter_url)
        except TemplateError as error:
            remarks[key] = str(error)
            return ""


def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)


def _urls(request: Send, message: AnyMessage) -> dict[str, str]:
    return {"portal_url": message.vm.portal_url, "exporter_url": request.exporter_url}


def _plain_facts(request: Send, message: AnyMessage) -> tuple[tuple[str, str], ...]:
    style = STYLES["text"]
    shown = cleaned(message, style, _zone(request.timezone))
    return tuple(facts(shown, request.now, style, **_urls(request, message)))


def _marker(request: Send) -> str:
    return ("(test) " if is_sample(request.messages[-1]) else "") + request.marker


def _delay(request: Send, at: datetime) -> str:
    """Return when a message's transition happened, if that is a while ago."""
    if (request.now - at).total_seconds() <= LATE_SECONDS:
        return ""
    moment = stamp(in_zone(at, _zone(request.timezone)))
    return f"This happened at {moment}, {relative(at, request.now)}{_FAILED * request.failed}."


def _with_delay(body: str, delay: str, text_format: TextFormat) -> str:
    if not delay:
        return body
    if text_format != "html":
        return f"{delay}\n\n{body}"
    found = BODY_TAG.search(body)
    start = found.end() if found else 0
    return f"{body[:start]}<p>{escape(delay)}</p>\n{body[start:]}"


def _body(style: Style, body: Body) -> str:
    """Return a body of ours in a format."""
    lines = [f"{style.text(fact.label)}: {style.text(fact.text)}" for fact in body.facts]
    return style.body([style.text(body.delay), style.text(body.head)], lines, style.text(body.note))


def _is_whole(request: Send, text: Text, room: Room | None) -> bool:
    """Return whether a text of ours need not be shortened."""
    text_format, title = request.templates.format, _marker(request) + text.title
    body = _body(STYLES[text_format], text.body) if isinstance(text.body, Body) else text.body
    return room is None or room.excess(title, body, text_format) <= 0


def _fitted(request: Send, title: str, body: Body | str, severity: Severity, room: Room | None) -> Rendered:
    text_format = request.templates.format
    written = partial(_body, STYLES[text_format])
    limit = None if room is None else max(0, -room.excess("", "", text_format))
    title = fit_title(_marker(request) + title, limit)
    if room is None:
        text = body if isinstance(body, str) else written(body)
    elif isinstance(body, str):
        text = fit_body(body, text_format, lambda text: room.excess(title, text, text_format))
    else:
        text = fit_facts(body, written, lambda text: room.excess(title, text, text_format))
    return Rendered(title, text, text_format, severity)


def _digest(request: Send, room: Room | None) -> tuple[Rendered, int]:
    """Render as many of the messages as fit, at least one, as one; return it and their number.

    They are in their order, a line each. The severity is the highest of theirs.
    """
    messages, now, text_format = request.messages, request.now, request.templates.format
    style, zone = STYLES[text_format], _zone(request.timezone)
    who = next((m.instance for m in reversed(messages) if m.instance), None)
    name = style.data(who) if who else "a VM whose name is not known yet"
    first = in_zone(messages[0].at, zone)
    head = f"Seen by {name}, the first at {stamp(first)}, {relative(first, now)}{_FAILED * request.failed}."
    grades = tuple(Severity)
    highest = [grades[most] for most in accumulate((one.severity.weight for one in messages), max)]
    lines = [style.text(digest_line(message, now, style)) for message in messages]

    def title(number: int) -> str:
        return _digest_title(messages[:number], highest[number - 1], who, _marker(request))

    def body(number: int) -> str:
        return style.body([style.text(head)], lines[:number])

    def is_too_long(number: int) -> bool:
        return room is not None and room.excess(title(number), body(number), text_format) > 0

    number = 1 + bisect_left(range(2, len(lines) + 1), True, key=is_too_long)
    return _fitted(request, title(number), body(number), highest[number - 1], room), number


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
