"""What Azure says: the document of scheduled events, decoded with all the field's oddities.

Sources: Azure's pages "Scheduled Events for Linux VMs" and "... for Windows VMs" for the fields, their types
and the API version that brought each; operators' reports for the rest.
"""

import hashlib
import json
import reprlib
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from exporter.errors import InvalidDocumentError

EVENT_TYPES = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")
SCHEDULED = "Scheduled"
STARTED = "Started"
EVENT_STATUSES = (SCHEDULED, STARTED)


class Target(StrEnum):
    """Whom an event hits, as seen from this VM."""

    SELF = "self"
    OTHER = "other"


class ScheduledEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event as the newest document has it; what Azure left blank or unknown is empty or None.

    Types and statuses are plain strings: Azure adds new ones without a new API version.
    ``not_before`` is aware and in UTC; ``duration_seconds`` is None where Azure says -1 or nothing.
    """

    event_id: str
    event_type: str
    event_status: str
    resources: tuple[str, ...] = ()
    not_before: datetime | None = None
    duration_seconds: int | None = None
    description: str = ""
    event_source: str = ""
    resource_type: str = ""

    @property
    def key(self) -> str:
        """The id as it is compared: Azure writes the same GUID in either case."""
        return self.event_id.lower()

    def hits(self, instance: str | None) -> Target:
        """Tell whether this VM is hit; an unknown name or an empty list of resources counts as hit."""
        if not instance or not self.resources:
            return Target.SELF
        wanted = normal_name(instance)
        return Target.SELF if any(normal_name(r) == wanted for r in self.resources) else Target.OTHER


class Defect(msgspec.Struct, frozen=True):
    """Something in a document that could not be understood; ``event_id`` is "" where even that is unreadable.

    ``lost`` tells whether the whole event had to be left out, or only the field that the message names.
    """

    event_id: str
    message: str
    lost: bool


class Document(msgspec.Struct, frozen=True):
    """One answer of the endpoint; of two events with one id the last holds."""

    incarnation: int
    events: tuple[ScheduledEvent, ...] = ()
    defects: tuple[Defect, ...] = ()


# An answer of 8 MiB has room for four million broken events, or for an event type of eight million letters,
# which would be a label from then on. As Azure writes them, 25,000 events fit, and have 300,000 values.
_MOST_VALUES = 400_000
_MOST_LOST = 1000
_LONGEST_NAME = 256
_LONGEST_TEXT = 65_536

# Wider numbers would fit neither a metric's float nor a database's column.
_Incarnation = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _RawDocument(msgspec.Struct):
    incarnation: _Incarnation = msgspec.field(name="DocumentIncarnation")
    events: list[msgspec.Raw] | None = msgspec.field(name="Events")


class _RawEvent(msgspec.Struct):
    event_id: str = msgspec.field(name="EventId")
    event_type: str = msgspec.field(name="EventType")
    event_status: str = msgspec.field(name="EventStatus")
    # Of these, one that makes no sense must not cost the event: they are read one by one.
    resources: Any = msgspec.field(name="Resources", default=None)
    not_before: Any = msgspec.field(name="NotBefore", default=None)
    duration: Any = msgspec.field(name="DurationInSeconds", default=None)
    description: Any = msgspec.field(name="Description", default=None)
    event_source: Any = msgspec.field(name="EventSource", default=None)
    resource_type: Any = msgspec.field(name="ResourceType", default=None)


_document_decoder = msgspec.json.Decoder(_RawDocument)
_event_decoder = msgspec.json.Decoder(_RawEvent)


def normal_name(name: str) -> str:
    """Fold a VM name for comparison: case is not significant, and old APIs put an underscore in front."""
    return name.removeprefix("_").casefold()


def decode_document(body: bytes) -> Document:
    """Decode an answer's body.

    A bad event, or a bad field of one, becomes a `Defect` and leaves its neighbours alone. Bad are,
    too, an id, a type, a status or a name of over 256 characters; a description is cut after 65,536.

    Raises:
        InvalidDocumentError: the whole is no document: no JSON, no incarnation, or no list of events; or it
            has some 400,000 values, or over 1,000 events that cannot be read.
    """
    if body.count(b",") >= _MOST_VALUES:
        raise InvalidDocumentError(f"no document of scheduled events: more than {_MOST_VALUES} values")
    defects: list[Defect] = []
    raw = _decode_whole(body.removeprefix(b"\xef\xbb\xbf"), defects)
    events: dict[str, ScheduledEvent] = {}
    lost = 0
    for number, item in enumerate(raw.events or ()):
        event = _decode_event(item, number, defects)
        if event is not None:
            events.pop(event.key, None)
            events[event.key] = event
        else:
            lost += 1
        if lost > _MOST_LOST:
            raise InvalidDocumentError(f"over {_MOST_LOST} events cannot be read: {defects[-1].message}")
    return Document(raw.incarnation, tuple(events.values()), tuple(defects))


def _decode_whole(body: bytes, defects: list[Defect]) -> _RawDocument:
    try:
        return _document_decoder.decode(body.decode())
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidDocumentError(f"no document of scheduled events: {error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        # To msgspec, one lone surrogate (a text cut in the middle of an emoji) makes the whole unreadable.
        try:
            raw = _document_decoder.decode(_with_replacements(body))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise InvalidDocumentError(f"no document of scheduled events: {error}") from error
        defects.append(Defect("", f"what is no Unicode was replaced: {error}", lost=False))
        return raw


def _with_replacements(body: bytes) -> bytes:
    """Put right what is no Unicode, if the standard library can read the rest; else ValueError."""
    content = json.loads(body.decode("utf-8", errors="replace"))
    return json.dumps(content, ensure_ascii=False).encode("utf-8", errors="replace")


def _decode_event(item: msgspec.Raw, number: int, defects: list[Defect]) -> ScheduledEvent | None:
    try:
        raw = _event_decoder.decode(item)
        _require_text({"EventId": raw.event_id, "EventType": raw.event_type, "EventStatus": raw.event_status})
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        found = _readable_id(item)
        # By its id where it has one: its place changes with every other event, and this is to be logged once.
        defects.append(Defect(found, f"event {found or f'number {number}'}: {error}", lost=True))
        return None
    notes: list[str] = []
    event = ScheduledEvent(
        event_id=raw.event_id,
        event_type=raw.event_type,
        event_status=raw.event_status,
        resources=_names(raw.resources, notes),
        not_before=_time(raw.not_before, notes),
        duration_seconds=_duration(raw.duration, notes),
        description=_text("Description", raw.description, notes, longest=_LONGEST_TEXT),
        event_source=_text("EventSource", raw.event_source, notes),
        resource_type=_text("ResourceType", raw.resource_type, notes),
    )
    defects.extend(Defect(event.event_id, f"event {event.event_id}: {note}", lost=False) for note in notes)
    return event


def _require_text(fields: dict[str, str]) -> None:
    for name, value in fields.items():
        if not value.strip():
            raise ValueError(f"{name} is empty")
        if len(value) > _LONGEST_NAME:
            raise ValueError(f"{name} has {len(value)} characters; {_LONGEST_NAME} are possible")


def _readable_id(item: msgspec.Raw) -> str:
    try:
        fields: Any = msgspec.json.decode(item)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    found = fields.get("EventId") if isinstance(fields, dict) else None
    return found if isinstance(found, str) and found.strip() and len(found) <= _LONGEST_NAME else ""


def _text(field: str, value: object, notes: list[str], *, longest: int = _LONGEST_NAME) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        if len(value) > longest:
            notes.append(f"{field}: cut, as it has {len(value)} characters; {longest} are possible")
        return value[:longest]
    notes.append(f"{field}: {_excerpt(value)} is no text")
    return ""


def _names(value: object, notes: list[str]) -> tuple[str, ...]:
    """Keep the names that can be read; with none left the event counts as this VM's, as with none given."""
    if value is None:
        return ()
    found = value if isinstance(value, list) else [value]
    names = tuple(name for name in found if isinstance(name, str) and len(name) <= _LONGEST_NAME)
    if len(names) < len(found) or not isinstance(value, list):
        notes.append(f"Resources: {_excerpt(value)} is no list of names")
    return names


def _time(value: object, notes: list[str]) -> datetime | None:
    try:
        return parse_time(_text("NotBefore", value, notes))
    except ValueError as error:
        notes.append(f"NotBefore: {error}")
        return None


def _duration(value: object, notes: list[str]) -> int | None:
    """Turn Azure's -1 ("unknown"), or anything else below 0 or beyond a century, into None."""
    if value is None or value == "":
        return None
    try:
        seconds = (
            float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
        )
    except (ValueError, OverflowError):
        seconds = None
    if seconds is None:
        notes.append(f"DurationInSeconds: {_excerpt(value)} is no number of seconds")
        return None
    return int(seconds) if 0 <= seconds < 4e9 else None


def _excerpt(value: object) -> str:
    # Not repr: it fails on what is nested as deeply as the decoder allows.
    return reprlib.repr(value)[:80]


def parse_time(text: str | None) -> datetime | None:
    """Read a NotBefore: RFC 1123 (whatever its weekday says) or ISO 8601; no zone means UTC, blank is None.

    Raises:
        ValueError: the text is not blank, and neither of the two.
    """
    if text is None or not text.strip():
        return None
    text = text.strip()
    try:
        found = (
            datetime.fromisoformat(text) if text[0].isdigit() and "-" in text else parsedate_to_datetime(text)
        )
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise ValueError(f"{text[:80]!r} is no RFC 1123 or ISO 8601 time") from error


def same_resources(left: Iterable[str], right: Iterable[str]) -> bool:
    """Compare two lists of VM names; their order means nothing here."""
    return sorted(map(normal_name, left)) == sorted(map(normal_name, right))


def trace_id(event_id: str) -> str:
    """Give the event's trace id, 32 hex digits: the GUID's 128 bits, so that all VMs agree on it.

    An id that is no GUID, or all zero (which W3C Trace Context forbids), gives the start of its SHA-256.
    """
    try:
        number = uuid.UUID(event_id).int
    except ValueError:
        number = 0
    return f"{number:032x}" if number else hashlib.sha256(event_id.encode()).hexdigest()[:32]
