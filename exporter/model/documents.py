"""Decoding of the document of scheduled events, tolerant of the deviations seen in the field.

Sources: Azure's pages "Scheduled Events for Linux VMs" and "... for Windows VMs" for the fields, their types
and the API version of each; operators' reports for the rest.
"""

import re
from typing import Any, NamedTuple

import msgspec

from exporter.errors import ImdsError, PollOutcome
from exporter.model.events import LONGEST_NAME, ScheduledEvent, Target
from exporter.model.fields import (
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

# Azure lists a handful of events.
MOST_EVENTS = 1000
# A document of 1 MiB in Azure's format has fewer. The shortest ones take twenty times as much memory as JSON.
_MOST_VALUES = 100_000
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

    ``incarnation`` is None if the document has no readable one. ``left_out`` has the ids, in lower case, of
    events beyond the number that counts, "" for those without a readable one.
    """

    incarnation: int | None
    events: tuple[ScheduledEvent, ...] = ()
    defects: tuple[Defect, ...] = ()
    left_out: frozenset[str] = frozenset()


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


class _RawId(msgspec.Struct):
    event_id: msgspec.Raw = msgspec.field(name="EventId", default=_NULL)


class _Entry(NamedTuple):
    """An entry of the list of events; ``event`` is None if it cannot be read, ``key`` is "" without an id."""

    place: int
    key: str
    event: ScheduledEvent | None
    defects: list[Defect]


_LEFT_OUT = f"more than {MOST_EVENTS} events: only those of this VM, and then the first ones, count"
_TWICE = "EventId: the document has several entries with this id, which differ"
_REPLACED = "\N{REPLACEMENT CHARACTER}".encode()
_WHOLE_NUMBER = re.compile("[+-]?[0-9]{1,19}")

_document_decoder = msgspec.json.Decoder(_RawDocument)
_event_decoder = msgspec.json.Decoder(_RawEvent)
_id_decoder = msgspec.json.Decoder(_RawId)
# Escaped characters, among them halves of a surrogate pair without the other half.
_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)


def decode_document(body: bytes, instance: str | None = None) -> Document:
    """Decode an answer's body; of over 1,000 events those of this VM, ``instance``, and then the first count.

    A bad event, or a bad field of one, becomes a `Defect` and leaves the others alone. Ids, types, statuses
    and names of over 256 characters are bad, too; a description is cut after 2,000. Of entries with one id
    the last readable one is kept, in doubt if they differ.

    Raises:
        ImdsError: it is not a document: not JSON, or without a list of events; or it has some 100,000 values.
    """
    if body.count(b",") >= _MOST_VALUES:
        raise _invalid(f"it has more than {_MOST_VALUES} values")
    defects: list[Defect] = []
    raw, doubts = _decode_whole(body.removeprefix(b"\xef\xbb\xbf"))
    incarnation = _incarnation(raw.incarnation, defects)
    defects.extend(Defect("", doubt, lost=False) for doubt in doubts)
    entries, left_out = _entries(raw.events, doubts, instance)
    events: dict[str, ScheduledEvent] = {}
    unreadable: set[str] = set()
    for _, key, event, found in entries:
        defects += found
        before = events.pop(key, None)
        if event is None:
            unreadable.add(key)
        if (kept := event or before) is not None:
            is_alone = key not in unreadable and before in (None, kept)
            events[key] = kept if is_alone else _doubted(kept, defects)
    if left_out:
        defects.append(Defect("", _LEFT_OUT, lost="" in left_out))
    return Document(incarnation, tuple(events.values()), tuple(defects), left_out)


def _entries(
    items: list[msgspec.Raw], doubts: tuple[str, ...], instance: str | None
) -> tuple[list[_Entry], frozenset[str]]:
    """Return the entries that count, in the order of the document, and the keys of the others."""
    own: list[_Entry] = []
    others: list[_Entry] = []
    left_out: set[str] = set()
    for place, item in enumerate(items):
        found: list[Defect] = []
        event = _decode_event(item, doubts, found)
        key = event.key if event is not None else found[-1].event_id.lower()
        is_own = event is not None and event.target(instance) is Target.SELF
        kept = own if is_own else others
        if len(kept) < MOST_EVENTS:
            kept.append(_Entry(place, key, event, found))
        else:
            left_out.add(key)
    room = MOST_EVENTS - len(own)
    left_out.update(entry.key for entry in others[room:])
    return sorted((*own, *others[:room]), key=lambda entry: entry.place), frozenset(left_out)


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
        # msgspec does not check the parts that it leaves as they are.
        body.decode()
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


def _with_replacements(body: bytes) -> bytes:
    """Return the JSON with each invalid character replaced by U+FFFD."""
    valid = body.decode(errors="replace").encode()
    return _ESCAPES.sub(lambda found: _REPLACED if found[1] else found[0], valid)


def _incarnation(raw: msgspec.Raw, defects: list[Defect]) -> int | None:
    """Return the number, which may be quoted."""
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
        raw = _event_decoder.decode(item)
        _require_id(raw.event_id)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        found = _readable_id(item)
        # Without its position, which changes with the other events: this is to be logged once.
        which = f"event {found}" if found else "event without a readable id"
        defects.append(Defect(found, f"{which}: {error}", lost=True))
        return None
    replaced = doubts if doubts and _REPLACED in bytes(item) else ()
    event = ScheduledEvent(
        event_id=raw.event_id,
        event_type=type_of(raw.event_type, notes),
        event_status=status_of(raw.event_status, notes),
        resources=names_of(raw.resources, notes),
        not_before=time_of(raw.not_before, notes),
        duration_seconds=duration_of(raw.duration, notes),
        description=text_of("Description", raw.description, notes, longest=LONGEST_TEXT),
        event_source=source_of(raw.event_source, notes),
        resource_type=text_of("ResourceType", raw.resource_type, notes),
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


def _readable_id(item: msgspec.Raw) -> str:
    try:
        found = msgspec.json.decode(_id_decoder.decode(item).event_id)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return found if isinstance(found, str) and found.strip() and len(found) <= LONGEST_NAME else ""
