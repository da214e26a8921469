"""Decoding of the document of scheduled events, tolerant of the deviations seen in the field.

Sources: Azure's pages "Scheduled Events for Linux VMs" and "... for Windows VMs" for the fields, their types
and the API version of each; operators' reports for the rest.
"""

import codecs
import io
import re
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from exporter.errors import ImdsError, PollOutcome
from exporter.model.events import LONGEST_NAME, ScheduledEvent
from exporter.model.fields import (
    LONGEST_NAMES,
    LONGEST_TEXT,
    duration_of,
    excerpt,
    names_of,
    source_of,
    status_of,
    text_of,
    time_of,
    type_of,
)

# A body of 8 MiB has room for four million broken events, or for an event type of eight million letters,
# which would become a label. In Azure's format 25,000 events fit, with 300,000 values.
_MOST_VALUES = 400_000
_MOST_LOST = 1000
# In bytes of JSON. A decoded text takes four times as much if it has a single emoji.
_LONGEST_FIELD = 4 * LONGEST_NAMES
_PIECE_BYTES = 64 * 1024
# Of all events of a document, as `ScheduledEvent.size` estimates them. In Azure's format 10,000 events fit.
# The shortest ones take more memory than estimated, so that their number is limited, too.
MOST_BYTES = 11 * 2**19
MOST_EVENTS = 10_000
# Larger numbers exceed a signed 64-bit integer.
_WIDEST_INCARNATION = 2**63 - 1


class Defect(msgspec.Struct, frozen=True):
    """A part of a document that could not be read; ``event_id`` is "" if the id is unreadable, too.

    ``lost`` is true if the whole event was left out, not only the field that the message names.
    """

    event_id: str
    message: str
    lost: bool


class Document(msgspec.Struct, frozen=True):
    """One answer of the endpoint; of two events with the same id, the last readable one is kept.

    ``incarnation`` is None if the document has no readable one.
    """

    incarnation: int | None
    events: tuple[ScheduledEvent, ...] = ()
    defects: tuple[Defect, ...] = ()


_NULL = msgspec.Raw(b"null")


class _RawDocument(msgspec.Struct):
    events: list[msgspec.Raw] = msgspec.field(name="Events")
    # An invalid number must not make the events unusable.
    incarnation: msgspec.Raw = msgspec.field(name="DocumentIncarnation", default=_NULL)


class _RawEvent(msgspec.Struct):
    event_id: str = msgspec.field(name="EventId")
    # An invalid value of one of these must not cost the event, so they are read one by one.
    event_type: Any = msgspec.field(name="EventType", default=None)
    event_status: Any = msgspec.field(name="EventStatus", default=None)
    resources: Any = msgspec.field(name="Resources", default=None)
    not_before: Any = msgspec.field(name="NotBefore", default=None)
    duration: Any = msgspec.field(name="DurationInSeconds", default=None)
    description: Any = msgspec.field(name="Description", default=None)
    event_source: Any = msgspec.field(name="EventSource", default=None)
    resource_type: Any = msgspec.field(name="ResourceType", default=None)


# The same fields, not decoded.
_Parts = msgspec.defstruct(
    "_Parts", [(field.encode_name, msgspec.Raw, _NULL) for field in msgspec.structs.fields(_RawEvent)]
)

_LEFT_OUT = f"left out: at most {MOST_EVENTS} events of a document, or {MOST_BYTES / 2**20:g} MiB, are kept"
_TWICE = "EventId: the document has several entries with this id, which differ"
_REPLACED = "\N{REPLACEMENT CHARACTER}".encode()
_WHOLE_NUMBER = re.compile("[+-]?[0-9]{1,19}")

_document_decoder = msgspec.json.Decoder(_RawDocument)
_event_decoder = msgspec.json.Decoder(_RawEvent)
_parts_decoder = msgspec.json.Decoder(_Parts)
# Escaped characters, among them halves of a surrogate pair without the other half.
_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)


def decode_document(body: bytes) -> Document:
    """Decode an answer's body.

    A bad event, or a bad field of one, becomes a `Defect` and leaves the others alone. Ids, types, statuses
    and names of over 256 characters are bad, too; a description is cut after 2,000. Of entries with one id
    the last readable one is kept, in doubt if they differ. Events beyond 10,000
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
    unreadable: set[str] = set()
    lost, size = 0, 0
    for item in raw.events:
        event = _decode_event(item, doubts, defects)
        key = event.key if event is not None else defects[-1].event_id.lower()
        before = events.pop(key, None)
        if event is None:
            lost += 1
            unreadable.add(key)
            if lost > _MOST_LOST:
                problem = f"over {_MOST_LOST} events cannot be read: {defects[-1].message}"
                raise ImdsError(PollOutcome.INVALID_DOCUMENT, problem)
            if before is None:
                continue
            event = before
        is_alone = key not in unreadable and before in (None, event)
        event = event if is_alone else _doubted(event, defects)
        size += event.size
        if size > MOST_BYTES or len(events) == MOST_EVENTS:
            defects.append(Defect(event.event_id, f"event {event.event_id}: {_LEFT_OUT}", lost=True))
        else:
            events[key] = event
    return Document(incarnation, tuple(events.values()), tuple(defects))


def _doubted(event: ScheduledEvent, defects: list[Defect]) -> ScheduledEvent:
    """Return an event of whose id there are several entries that differ."""
    if _TWICE in event.doubts:
        return event
    defects.append(Defect(event.event_id, f"event {event.event_id}: {_TWICE}", lost=False))
    return msgspec.structs.replace(event, doubts=(*event.doubts, _TWICE))


def _invalid(problem: object) -> ImdsError:
    return ImdsError(PollOutcome.INVALID_DOCUMENT, f"not a document of scheduled events: {problem}")


def _decode_whole(body: bytes) -> tuple[_RawDocument, tuple[str, ...]]:
    """Return the document, and the doubts about events with a replaced character."""
    try:
        for _ in _texts(body):
            pass
        return _document_decoder.decode(body), ()
    except (msgspec.ValidationError, RecursionError) as error:
        raise _invalid(error) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        # For msgspec, one lone surrogate (a text cut in the middle of an emoji) makes the whole document
        # invalid.
        try:
            raw = _document_decoder.decode(_with_replacements(body))
        except (msgspec.MsgspecError, RecursionError):
            raise _invalid(error) from error
        return raw, (f"Document: invalid Unicode was replaced: {error}",)


def _texts(body: bytes, errors: str = "strict") -> Iterator[str]:
    """Decode UTF-8 in pieces: as a whole, the text of 8 MiB with a single emoji takes 32 MiB."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
    for start in range(0, len(body), _PIECE_BYTES):
        yield decoder.decode(body[start : start + _PIECE_BYTES])
    yield decoder.decode(b"", final=True)


def _with_replacements(body: bytes) -> bytes:
    """Return the JSON with each invalid character replaced by U+FFFD."""
    # A list of the pieces could take many times as much as they do together.
    valid, replaced = io.BytesIO(), io.BytesIO()
    for text in _texts(body, "replace"):
        valid.write(text.encode())
    done = 0
    with valid.getbuffer() as view:
        for found in _ESCAPES.finditer(view):
            if found[1]:
                replaced.write(view[done : found.start()])
                replaced.write(_REPLACED)
                done = found.end()
        replaced.write(view[done:])
    return replaced.getvalue()


def _incarnation(raw: msgspec.Raw, defects: list[Defect]) -> int | None:
    """Return the number, which may be quoted."""
    if (length := memoryview(raw).nbytes) > _LONGEST_FIELD:
        raise _invalid(f"its DocumentIncarnation has {length} bytes")
    try:
        value: object = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        # Valid JSON for which there is no value, such as 1e999.
        value = str(memoryview(raw), "utf-8")
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value.strip()):
        number = int(value)
    if number is not None and abs(number) <= _WIDEST_INCARNATION:
        return number
    found = "is missing" if value is None else f"{excerpt(value)} is not a whole number of 64 bits"
    defects.append(Defect("", f"DocumentIncarnation: {found}; no event is taken as cancelled", lost=False))
    return None


def _decode_event(item: msgspec.Raw, doubts: tuple[str, ...], defects: list[Defect]) -> ScheduledEvent | None:
    notes: list[str] = []
    try:
        if memoryview(item).nbytes > _LONGEST_FIELD:
            item = _without_long_fields(item, notes)
        raw = _event_decoder.decode(item)
        _require_id(raw.event_id)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        found = _readable_id(item)
        # Without its position, which changes with the other events: this is to be logged once.
        which = f"event {found}" if found else "event without a readable id"
        defects.append(Defect(found, f"{which}: {error}", lost=True))
        return None
    replaced = doubts if doubts and _REPLACED in bytes(item) else ()
    # The texts that thousands of events have in common are kept once.
    event = ScheduledEvent(
        event_id=raw.event_id,
        event_type=sys.intern(type_of(raw.event_type, notes)),
        event_status=sys.intern(status_of(raw.event_status, notes)),
        resources=names_of(raw.resources, notes),
        not_before=time_of(raw.not_before, notes),
        duration_seconds=duration_of(raw.duration, notes),
        description=text_of("Description", raw.description, notes, longest=LONGEST_TEXT),
        event_source=sys.intern(source_of(raw.event_source, notes)),
        resource_type=sys.intern(text_of("ResourceType", raw.resource_type, notes)),
        # The last one, as the others add to the notes.
        doubts=(*replaced, *notes),
    )
    defects.extend(Defect(event.event_id, f"event {event.event_id}: {note}", lost=False) for note in notes)
    return event


def _require_id(event_id: str) -> None:
    if not event_id.strip():
        raise ValueError("EventId is empty")
    if len(event_id) > LONGEST_NAME:
        raise ValueError(f"EventId has {len(event_id)} characters; {LONGEST_NAME} are possible")


def _without_long_fields(item: msgspec.Raw, notes: list[str]) -> msgspec.Raw:
    """Return an event without its endless fields; raise ValueError if the id is one."""
    parts = msgspec.structs.asdict(_parts_decoder.decode(item))
    for name, value in parts.items():
        if (length := memoryview(value).nbytes) > _LONGEST_FIELD:
            problem = f"{length} bytes; {_LONGEST_FIELD} are possible"
            if name == "EventId":
                raise ValueError(f"{name} has {problem}")
            notes.append(f"{name}: {problem}")
            parts[name] = _NULL
    return msgspec.Raw(msgspec.json.encode(parts))


def _readable_id(item: msgspec.Raw) -> str:
    try:
        part: msgspec.Raw = msgspec.structs.asdict(_parts_decoder.decode(item))["EventId"]
        found = msgspec.json.decode(part) if memoryview(part).nbytes <= _LONGEST_FIELD else ""
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return found if isinstance(found, str) and found.strip() and len(found) <= LONGEST_NAME else ""
