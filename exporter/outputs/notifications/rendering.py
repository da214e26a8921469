"""Rendering of messages: title and body, by the user's templates or ours, cut to the service's limit."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from functools import partial
from html import escape
from typing import NamedTuple
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from exporter.model.lifecycle import Transition
from exporter.model.messages import AnyMessage, Message, Rendered, Severity, TextFormat, severity
from exporter.model.wording import relative, stamp
from exporter.outputs.notifications import words
from exporter.outputs.notifications.facts import facts
from exporter.outputs.notifications.fitting import BODY_TAG, Body, Room, fit_body, fit_facts, fit_title
from exporter.outputs.notifications.protocol import Rendering, Send
from exporter.outputs.notifications.samples import SAMPLE_ID
from exporter.outputs.notifications.styles import STYLES, Style, cleaned, in_zone

LATE_SECONDS = 5.0  # a message that is older than this contains the time of its transition
_FAILED = "; it could not be delivered before"
_UNLIMITED = Room(lambda title, body, _: len(title) + len(body) - sys.maxsize, ("markdown", "text", "html"))
_MOST_LEFT_OUT = 4  # of the earlier messages that a message stands for, these are named


class Text(NamedTuple):
    """A message in words, of any length."""

    title: str
    body: Body | str  # in parts, or by the user's template
    remarks: dict[str, str]  # the failures of the user's templates


class Renderer:
    """Renders messages; ``announce`` is told before a template of the user is used."""

    def __init__(self, announce: Callable[[Rendering], None] = lambda _: None) -> None:
        self._announce = announce

    def render(
        self, request: Send, room: Room | None = None, *, with_facts: bool = False
    ) -> tuple[Rendered, dict[str, str]]:
        """Return the message of a request, and the failures of templates.

        It fits the ``room``, for which our text may get another format: one that the service shows, as a
        conversion to plain text would drop the addresses of links, and a shorter one if need be. A text that
        is still too long is shortened, and says so. The user's templates are for events; messages about the
        watch always use ours. The facts are added ``with_facts``, as few services have fields for them.
        """
        request = replace(request, now=in_zone(request.now, _zone(request.timezone)))
        room, message = room or _UNLIMITED, request.message
        text = self._written(request, message, room)
        for text_format in room.formats:
            is_shown = room.is_text or request.templates.format in room.formats
            if isinstance(text.body, str) or (is_shown and _is_whole(request, text, room)):
                break
            request = replace(request, templates=replace(request.templates, format=text_format))
            text = self._written(request, message, room)
        rendered = replace(
            _fitted(request, text.title, text.body, message.severity, room),
            traceparent=request.traceparent,
            incident=message.incident,
            resolves=message.resolves,
            only_closes=message.only_closes,
            is_incident=_is_incident(request, message),
            facts=_plain_facts(request, message) if with_facts else (),
            link=request.exporter_url or message.vm.portal_url,
            source=message.instance or "",
        )
        return rendered, text.remarks

    def webhook_body(self, request: Send) -> tuple[str, dict[str, str]]:
        """Return the body by the user's template, "" if there is none, and the failures of templates."""
        request = replace(request, now=in_zone(request.now, _zone(request.timezone)))
        remarks: dict[str, str] = {}
        if not isinstance(request.message, Message):
            return "", remarks
        return self._by_template("body", request, request.message, remarks), remarks

    def _written(self, request: Send, message: AnyMessage, room: Room) -> Text:
        now, style, zone = request.now, STYLES[request.templates.format], _zone(request.timezone)
        remarks: dict[str, str] = {}
        title, own = (
            self._by_template(key, request, message, remarks) if isinstance(message, Message) else ""
            for key in ("title", "body")
        )
        if not title:
            left = words.TITLE_LENGTH - len(_marker(request))
            title = f"[{message.severity.upper()}] {words.headline(message, now, left)}"
        delay = _delay(request, message.at)
        if own:
            return Text(title, _with_delay(own, delay, request.templates.format), remarks)
        shown = cleaned(message, style, zone)
        rows = facts(shown, now, style, **_urls(request, message))
        if room.is_text:
            # Without a link, words would lead nowhere.
            rows = [fact._replace(url="") for fact in rows]
        return Text(title, Body(delay, words.explanation(shown), rows), remarks)

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


def _is_incident(request: Send, message: AnyMessage) -> bool:
    """Return whether services with incidents get a message: a warning or graver opens one."""
    if not isinstance(message, Message):
        return True
    if not message.resolves:
        return request.is_open or message.severity.is_grave
    # Only of a Freeze is every message an info, unless a hook fails.
    has_failed = message.event.since(Transition.HOOK_FAILED) is not None
    return has_failed or severity(Transition.STARTED, message.event.type).is_grave


def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)


def _urls(request: Send, message: AnyMessage) -> dict[str, str]:
    return {
        "portal_url": message.vm.portal_url,
        "exporter_url": request.exporter_url,
        "runbook_url": request.runbook_url,
    }


def _plain_facts(request: Send, message: AnyMessage) -> tuple[tuple[str, str], ...]:
    style = STYLES["text"]
    shown = cleaned(message, style, _zone(request.timezone))
    rows = facts(shown, request.now, style, **_urls(request, message))
    return tuple((fact.label, fact.text) for fact in rows)


def _marker(request: Send) -> str:
    return ("(test) " if request.message.key.startswith(SAMPLE_ID) else "") + request.marker


def _delay(request: Send, at: datetime) -> str:
    """Return when a message's transition happened, if that is a while ago, and what it stands for."""
    zone, sentences = _zone(request.timezone), []
    if (request.now - at).total_seconds() > LATE_SECONDS:
        happened = stamp(in_zone(at, zone))
        sentences.append(
            f"This happened at {happened}, {relative(at, request.now)}{_FAILED * request.failed}."
        )
    left_out = [
        f"{transition.replace('_', ' ')} at {stamp(in_zone(moment, zone))}"
        for transition, moment in request.stands_for
    ]
    if len(left_out) > _MOST_LEFT_OUT:
        more = f"{len(left_out) - _MOST_LEFT_OUT + 1} more"
        left_out = [left_out[0], more, *left_out[2 - _MOST_LEFT_OUT :]]
    if left_out:
        sentences.append(f"Earlier messages are left out: {', '.join(left_out)}.")
    return " ".join(sentences)


def _with_delay(body: str, delay: str, text_format: TextFormat) -> str:
    if not delay:
        return body
    if text_format != "html":
        return f"{delay}\n\n{body}"
    tag = BODY_TAG.search(body)
    start = tag.end() if tag else 0
    return f"{body[:start]}<p>{escape(delay)}</p>\n{body[start:]}"


def _body(style: Style, body: Body) -> str:
    """Return a body of ours in a format."""
    lines = [
        style.named_link(fact.label, fact.url)
        if fact.url
        else f"{style.text(fact.label)}: {style.text(fact.text)}"
        for fact in body.facts
    ]
    return style.body([style.text(body.delay), style.text(body.head)], lines, style.text(body.note))


def _is_whole(request: Send, text: Text, room: Room) -> bool:
    """Return whether a text of ours need not be shortened."""
    text_format, title = request.templates.format, _marker(request) + text.title
    body = _body(STYLES[text_format], text.body) if isinstance(text.body, Body) else text.body
    return room.excess(title, body, text_format) <= 0


def _fitted(request: Send, title: str, body: Body | str, gravity: Severity, room: Room) -> Rendered:
    text_format = request.templates.format
    title = fit_title(_marker(request) + title, max(0, -room.excess("", "", text_format)))
    if isinstance(body, str):
        text = fit_body(body, text_format, lambda text: room.excess(title, text, text_format))
    else:
        written = partial(_body, STYLES[text_format])
        text = fit_facts(body, written, lambda text: room.excess(title, text, text_format))
    return Rendered(title, text, text_format, gravity)
