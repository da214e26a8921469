"""Decoding of the document of scheduled events, tolerant of the deviations seen in the field.

Sources: Azure's pages "Scheduled Events for Linux VMs" and "... for Windows VMs" for the fields, their types
and the API version of each; operators' reports for the rest.
"""

import json
import math
import re
import reprlib
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from exporter.errors import ImdsError, PollOutcome
from exporter.model.events import (
    CANCELED,
    COMPLETED,
    LONGEST_NAME,
    SCHEDULED,
    STARTED,
    UNKNOWN,
    ScheduledEvent,
)

# Statuses are compared without regard to case; every other status is kept as Azure wrote it.
_STATUSES = {status.lower(): status for status in (SCHEDULED, STARTED, COMPLETED, CANCELED)} | {
    "cancelled": CANCELED
}
# A body of 8 MiB has room for four million broken events, or for an event type of eight million letters,
# which would become a label. In Azure's format 25,000 events fit, with 300,000 values.
_MOST_VALUES = 400_000
_MOST_LOST = 1000
_LONGEST_TEXT = 2000
_LONGEST_NAMES = 64 * 1024  # all names of an event together
# Of all events of a document, as `ScheduledEvent.size` estimates them. In Azure's format 10,000 events fit.
# The shortest ones take more memory than estimated, so that their number is limited, too.
MOST_BYTES = 11 * 2**19
MOST_EVENTS = 10_000
# Larger numbers exceed a signed 64-bit integer.
_WIDEST_INCARNATION = 2**63 - 1
# Longer durations, over a century, are errors.
_LONGEST_DURATION = 4e9


class Defect(msgspec.Struct, frozen=True):
    """A part of a document that could not be read; ``event_id`` is "" if the id is unreadable, too.

    ``lost`` is true if the whole event was left out, not only the field that the message names.
    """

    event_id: str
    message: str
    lost: bool


class Document(msgspec.Struct, frozen=True):
    """One answer of the endpoint; of two events with the same id, the last is kept.

    ``incarnation`` is None if the document has no readable one.
    """

    incarnation: int | None
    events: tuple[ScheduledEvent, ...] = ()
    defects: tuple[Defect, ...] = ()


class _RawDocument(msgspec.Struct):
    events: list[msgspec.Raw] = msgspec.field(name="Events")
    # An invalid number must not make the events unusable.
    incarnation: Any = msgspec.field(name="DocumentIncarnation", default=None)


class _RawEvent(msgspec.Struct):
    event_id: str = msgspec.field(name="EventId")
    event_type: str = msgspec.field(name="EventType")
    # An invalid value of one of these must not cost the event, so they are read one by one.
    event_status: Any = msgspec.field(name="EventStatus", default=None)
    resources: Any = msgspec.field(name="Resources", default=None)
    not_before: Any = msgspec.field(name="NotBefore", default=None)
    duration: Any = msgspec.field(name="DurationInSeconds", default=None)
    description: Any = msgspec.field(name="Description", default=None)
    event_source: Any = msgspec.field(name="EventSource", default=None)
    resource_type: Any = msgspec.field(name="ResourceType", default=None)


_LEFT_OUT = f"left out: at most {MOST_EVENTS} events of a document, or {MOST_BYTES / 2**20:g} MiB, are kept"
_REPLACED = "\N{REPLACEMENT CHARACTER}".encode()
_SURROGATE = re.compile("[\ud800-\udfff]")
_WHOLE_NUMBER = re.compile("[+-]?[0-9]{1,19}")
# The standard library supports neither second 60 nor hour 24.
_LEAP_SECOND = re.compile(r"(:[0-5]\d:)60(?!\d)")
_END_OF_DAY = re.compile(r"([Tt\s])24:00(?::00(?:\.0+)?)?(?=[^:\d]|$)")

_document_decoder = msgspec.json.Decoder(_RawDocument)
_event_decoder = msgspec.json.Decoder(_RawEvent)


def decode_document(body: bytes) -> Document:
    """Decode an answer's body.

    A bad event, or a bad field of one, becomes a `Defect` and leaves the others alone. Ids, types, statuses
    and names of over 256 characters are bad, too; a description is cut after 2,000. Events beyond 10,000
    or 5.5 MiB are left out.

    Raises:
        ImdsError: it is not a document: not JSON, or without a list of events; or it has some
            400,000 values, or over 1,000 events that cannot be read.
    """
    if body.count(b",") >= _MOST_VALUES:
        raise _invalid(f"it has more than {_MOST_VALUES} values")
    defects: list[Defect] = []
    raw, doubts = _decode_whole(body.removeprefix(b"\xef\xbb\xbf"))
    incarnation = _incarnation(raw.incarnation, defects)
    defects.extend(Defect("", doubt, lost=False) for doubt in doubts)
    events: dict[str, ScheduledEvent] = {}
    lost, size = 0, 0
    for item in raw.events:
        event = _decode_event(item, doubts, defects)
        size += event.size if event is not None else 0
        if event is not None and (size > MOST_BYTES or len(events) == MOST_EVENTS):
            defects.append(Defect(event.event_id, f"event {event.event_id}: {_LEFT_OUT}", lost=True))
            events.pop(event.key, None)
        elif event is not None:
            events.pop(event.key, None)
            events[event.key] = event
        else:
            events.pop(defects[-1].event_id.lower(), None)
            lost += 1
        if lost > _MOST_LOST:
            problem = f"over {_MOST_LOST} events cannot be read: {defects[-1].message}"
            raise ImdsError(PollOutcome.INVALID_DOCUMENT, problem)
    return Document(incarnation, tuple(events.values()), tuple(defects))


def _invalid(problem: object) -> ImdsError:
    return ImdsError(PollOutcome.INVALID_DOCUMENT, f"not a document of scheduled events: {problem}")


def _decode_whole(body: bytes) -> tuple[_RawDocument, tuple[str, ...]]:
    """Return the document, and the doubts about events with a replaced character."""
    try:
        return _document_decoder.decode(body.decode()), ()
    except (msgspec.ValidationError, RecursionError) as error:
        raise _invalid(error) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        # For msgspec, one lone surrogate (a text cut in the middle of an emoji) makes the whole document
        # invalid.
        try:
            raw = _document_decoder.decode(_with_replacements(body))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise _invalid(error) from error
        return raw, (f"Document: invalid Unicode was replaced: {error}",)


def _incarnation(value: object, defects: list[Defect]) -> int | None:
    """Return the number, which may be quoted."""
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value.strip()):
        number = int(value)
    if number is not None and abs(number) <= _WIDEST_INCARNATION:
        return number
    found = "is missing" if value is None else f"{_excerpt(value)} is not a whole number of 64 bits"
    defects.append(Defect("", f"DocumentIncarnation: {found}; no event is taken as cancelled", lost=False))
    return None


def _with_replacements(body: bytes) -> bytes:
    """Return the JSON with invalid Unicode replaced; raise ValueError if it is still unreadable."""
    content = json.loads(body.decode("utf-8", errors="replace"))
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", json.dumps(content, ensure_ascii=False)).encode()


def _decode_event(item: msgspec.Raw, doubts: tuple[str, ...], defects: list[Defect]) -> ScheduledEvent | None:
    try:
        raw = _event_decoder.decode(item)
        _require_text({"EventId": raw.event_id, "EventType": raw.event_type})
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        found = _readable_id(item)
        # Without its position, which changes with the other events: this is to be logged once.
        which = f"event {found}" if found else "event without a readable id"
        defects.append(Defect(found, f"{which}: {error}", lost=True))
        return None
    notes: list[str] = []
    event = ScheduledEvent(
        event_id=raw.event_id,
        event_type=raw.event_type,
        event_status=_status(raw.event_status, notes),
        resources=_names(raw.resources, notes),
        not_before=_time(raw.not_before, notes),
        duration_seconds=_duration(raw.duration, notes),
        description=_text("Description", raw.description, notes, longest=_LONGEST_TEXT),
        event_source=_text("EventSource", raw.event_source, notes),
        resource_type=_text("ResourceType", raw.resource_type, notes),
    )
    defects.extend(Defect(event.event_id, f"event {event.event_id}: {note}", lost=False) for note in notes)
    replaced = doubts if _REPLACED in bytes(item) else ()
    return msgspec.structs.replace(event, doubts=(*replaced, *notes))


def _require_text(fields: dict[str, str]) -> None:
    for name, value in fields.items():
        if not value.strip():
            raise ValueError(f"{name} is empty")
        if len(value) > LONGEST_NAME:
            raise ValueError(f"{name} has {len(value)} characters; {LONGEST_NAME} are possible")


def _readable_id(item: msgspec.Raw) -> str:
    try:
        fields: Any = msgspec.json.decode(item)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    found = fields.get("EventId") if isinstance(fields, dict) else None
    return found if isinstance(found, str) and found.strip() and len(found) <= LONGEST_NAME else ""


def _text(field: str, value: object, notes: list[str], *, longest: int = LONGEST_NAME) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        if len(value) > longest:
            notes.append(f"{field}: cut from {len(value)} to {longest} characters")
        return value[:longest]
    notes.append(f"{field}: {_excerpt(value)} is not text")
    return ""


def _status(value: object, notes: list[str]) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if text and len(text) <= LONGEST_NAME:
        return _STATUSES.get(text.lower(), str(value))
    found = "it is missing" if value is None else f"{_excerpt(value)} is not a status"
    notes.append(f"EventStatus: {found}")
    return UNKNOWN


def _names(value: object, notes: list[str]) -> tuple[str, ...]:
    """Return the readable names; an event without any counts as this VM's."""
    if value is None:
        return ()
    found = value if isinstance(value, list) else [value]
    names = tuple(
        name for name in found if isinstance(name, str) and name.strip() and len(name) <= LONGEST_NAME
    )
    if len(names) < len(found) or not isinstance(value, list):
        notes.append(f"Resources: {_excerpt(value)} is not a list of names")
    if (length := sum(map(len, names))) > _LONGEST_NAMES:
        # Without some of them, this VM could be missed.
        notes.append(f"Resources: {len(names)} names of {length} characters; {_LONGEST_NAMES} are possible")
        return ()
    return names


def _time(value: object, notes: list[str]) -> datetime | None:
    try:
        return parse_time(_text("NotBefore", value, notes))
    except ValueError as error:
        notes.append(f"NotBefore: {error}")
        return None


def _duration(value: object, notes: list[str]) -> int | None:
    """Return whole seconds; None for Azure's -1 ("unknown") and everything else below 0."""
    if value is None or value == "":
        return None
    try:
        seconds = (
            float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
        )
    except (ValueError, OverflowError):
        seconds = None
    if seconds is None or not seconds < _LONGEST_DURATION:
        notes.append(f"DurationInSeconds: {_excerpt(value)} is not a number of seconds")
        return None
    if seconds < 0:
        return None
    if seconds != int(seconds):
        notes.append(f"DurationInSeconds: rounded up from {_excerpt(value)}")
    return math.ceil(seconds)


def _excerpt(value: object) -> str:
    # Not repr, which fails on nesting as deep as the decoder allows.
    return reprlib.repr(value)[:80]


def parse_time(text: str | None) -> datetime | None:
    """Parse a NotBefore: RFC 1123 (ignoring the weekday) or ISO 8601; no zone means UTC, blank is None.

    A leap second (``:60``, RFC 3339 section 5.7) is the second after it, and 24:00 the end of the day.

    Raises:
        ValueError: the text is in neither format.
    """
    if text is None or not text.strip():
        return None
    text = text.strip()
    plain, leaps = _LEAP_SECOND.subn(r"\g<1>59", text, count=1)
    plain, days = _END_OF_DAY.subn(r"\g<1>00:00:00", plain, count=1)
    try:
        is_iso = plain[0].isdigit() and "-" in plain
        found = datetime.fromisoformat(plain.upper()) if is_iso else parsedate_to_datetime(plain)
        aware = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        return aware + timedelta(days=days, seconds=leaps)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise ValueError(f"{text[:80]!r} is not an RFC 1123 or ISO 8601 time") from error
