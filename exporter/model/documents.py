"""Decoding of the document of scheduled events, tolerant of the deviations seen in the field.

What cannot be read of a field becomes a note about the event, and leaves the field empty. Sources: Azure's
pages "Scheduled Events for Linux VMs" and "... for Windows VMs" for the fields, their types and the API
version of each; operators' reports for the rest.
"""

import itertools
import math
import re
import reprlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import msgspec

from exporter.errors import ImdsError, PollOutcome, cause
from exporter.model.events import (
    CANCELED,
    COMPLETED,
    EVENT_SOURCES,
    EVENT_TYPES,
    LONGEST_NAME,
    REBALANCE,
    SCHEDULED,
    STARTED,
    UNKNOWN,
    Affected,
    ScheduledEvent,
    normal_name,
    normal_word,
)
from exporter.timefmt import parse_number


def _by_word(words: Iterable[str]) -> dict[str, str]:
    return {normal_word(word): word for word in words}


# Known words get Azure's spelling; every other word is kept as Azure wrote it.
_TYPES = _by_word((*EVENT_TYPES, REBALANCE))
_SOURCES = _by_word(EVENT_SOURCES)
_STATUSES = _by_word((SCHEDULED, STARTED, COMPLETED, CANCELED)) | {"cancelled": CANCELED}
LONGEST_TEXT = 2000
LONGEST_NAMES = 64 * 1024  # all names of an event together
_LONGEST_EXCERPT = 80
_LONGEST_DURATION = 4e9  # longer durations, over a century, are errors
# The standard library supports neither second 60 nor hour 24.
_LEAP_SECOND = re.compile(r"(:[0-5]\d:)60(?!\d)")
# After the time of day: nothing, an offset, or a name that RFC 5322 (sections 3.3 and 4.3) defines, and UTC.
# Military letters other than Z are left out, because RFC 5322 takes them for unknown.
_ZONE = re.compile(r":\d\d(?::\d\d)?\s*(?:[+-]\d{4}|UTC?|GMT|Z|[ECMP][SD]T)?(?:\s*\(.*\))?", re.IGNORECASE)
# The first day of year 1 is what .NET writes for a time that is not set.
_NOT_SET = re.compile(r"0001-|.*\s0001\s")
# Without digits of other scripts and underscores, which Python takes, too.
_END_OF_DAY = re.compile(r"([Tt\s])24:00(?::00(?:\.0+)?)?(?=[^:\d]|$)")


def text_of(field: str, value: object, notes: list[str], *, longest: int = LONGEST_NAME) -> str:
    """Return the text, cut after ``longest`` characters."""
    if value is None:
        return ""
    if isinstance(value, str):
        if len(value) > longest:
            notes.append(f"{field}: cut from {len(value)} to {longest} characters")
        return value[:longest]
    notes.append(f"{field}: {excerpt(value)} is not text")
    return ""


def _required_word(
    field: str, what: str, value: object, spellings: Mapping[str, str], notes: list[str]
) -> str:
    """Return a word, a known one in Azure's spelling; `UNKNOWN` without one."""
    if isinstance(value, str) and value.strip() and len(value) <= LONGEST_NAME:
        return _word(field, value, spellings, notes)
    problem = "it is missing" if value is None else f"{excerpt(value)} is not {what}"
    notes.append(f"{field}: {problem}")
    return UNKNOWN


def _word(field: str, text: str, spellings: Mapping[str, str], notes: list[str]) -> str:
    word = spellings.get(normal_word(text), text)
    if word != text and normal_word(word) == normal_word(text):
        notes.append(f"{field}: {excerpt(text)} differs from {word} in case or blanks")
    return word


def names_of(value: object, notes: list[str], instance: str | None = None) -> tuple[str, ...]:
    """Return the readable names, cut so that ``instance``, this VM's name, stays."""
    if value is None:
        return ()
    values = value if isinstance(value, list) else [value]
    # Short names take ten times as much memory as in a document.
    distinct: dict[str, str] = {}
    names = tuple(
        distinct.setdefault(name, name)
        for name in values
        if isinstance(name, str) and name.strip() and len(name) <= LONGEST_NAME
    )
    if len(names) < len(values) or not isinstance(value, list):
        notes.append(f"Resources: {excerpt(value)} is not a list of names")
    kept = _within(LONGEST_NAMES, names, instance)
    if len(kept) < len(names):
        notes.append(f"Resources: cut from {len(names)} to {len(kept)} names")
    return kept


def _within(length: int, names: tuple[str, ...], instance: str | None) -> tuple[str, ...]:
    """Return the first names that have so many characters together; if need be, this VM's as the last."""
    kept = names[: sum(end <= length for end in itertools.accumulate(map(len, names)))]
    own = next((name for name in names if instance and normal_name(name) == normal_name(instance)), None)
    return kept if own is None or own in kept else (*kept[:-1], own)


def time_of(value: object, notes: list[str]) -> datetime | None:
    """Return the time in UTC; None for a blank one."""
    try:
        return _parse_time(text_of("NotBefore", value, notes))
    except ValueError as error:
        notes.append(f"NotBefore: {error}")
        return None


def duration_of(value: object, notes: list[str]) -> int | None:
    """Return whole seconds; None for Azure's -1 ("unknown") and everything else below 0."""
    if value is None or value == "":
        return None
    seconds = None
    try:
        if isinstance(value, str):
            seconds = parse_number(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            seconds = float(value)
    except (ValueError, OverflowError):
        pass
    if seconds is None or not seconds < _LONGEST_DURATION:
        notes.append(f"DurationInSeconds: {excerpt(value)} is not a number of seconds")
        return None
    if seconds < 0:
        return None
    if seconds != int(seconds):
        notes.append(f"DurationInSeconds: rounded up from {excerpt(value)}")
    return math.ceil(seconds)


def excerpt(value: object) -> str:
    """Return the start of a value's representation."""
    # Not repr, which fails on nesting as deep as the decoder allows.
    return reprlib.repr(value)[:_LONGEST_EXCERPT]


def _parse_time(text: str | None) -> datetime | None:
    """Parse a NotBefore: RFC 1123 (ignoring the weekday) or ISO 8601; no zone means UTC.

    A blank one is None, and so is one of year 1, which is not set. A leap second (``:60``, RFC 3339 section
    5.7) is the second after it, and 24:00 the end of the day.

    Raises:
        ValueError: the text is in neither format, or has a zone that RFC 5322 does not define.
    """
    if text is None or not text.strip() or _NOT_SET.match(text.strip()):
        return None
    text = text.strip()
    # The parsers of both formats take digits of other scripts and underscores for numbers.
    if not text.isascii() or "_" in text:
        raise ValueError(f"{text[:_LONGEST_EXCERPT]!r} is not an RFC 1123 or ISO 8601 time")
    plain, leaps = _LEAP_SECOND.subn(r"\g<1>59", text) if ":60" in text else (text, 0)
    plain, days = _END_OF_DAY.subn(r"\g<1>00:00:00", plain) if "24:00" in plain else (plain, 0)
    try:
        time = datetime.fromisoformat(plain.upper()) if plain[:4].isdigit() else _rfc_time(plain)
        aware = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
        return aware + timedelta(days=days, seconds=leaps)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise ValueError(f"{text[:_LONGEST_EXCERPT]!r} is not an RFC 1123 or ISO 8601 time") from error


def _rfc_time(text: str) -> datetime:
    # The standard library takes a zone that it does not know for UTC.
    if _ZONE.fullmatch(text, max(text.find(":"), 0)) is None:
        raise ValueError(f"{text!r} has no known zone")
    return parsedate_to_datetime(text)


MOST_EVENTS = 1000  # Azure lists a handful of events
# A document of 1 MiB in Azure's format has fewer. The shortest ones take twenty times as much memory as JSON.
_MOST_VALUES = 100_000
_WIDEST_INCARNATION = 2**63 - 1  # larger numbers exceed a signed 64-bit integer


class Defect(msgspec.Struct, frozen=True):
    """A part of a document that could not be read."""

    event_id: str  # "" if it is unreadable, too
    message: str
    lost: bool  # whether the whole event was left out, not only the field that the message names


class Document(msgspec.Struct, frozen=True):
    """One answer of the endpoint; of two events with the same id, the last readable one is kept."""

    incarnation: int | None  # None without a readable one
    events: tuple[ScheduledEvent, ...] = ()
    defects: tuple[Defect, ...] = ()
    left_out: frozenset[str] = frozenset()  # the ids, in lower case or "", of events beyond those that count


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
    for _, key, event, item_defects in entries:
        defects += item_defects
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
        item_defects: list[Defect] = []
        event = _decode_event(item, doubts, instance, item_defects)
        key = event.key if event is not None else item_defects[-1].event_id.lower()
        is_own = event is not None and event.target(instance) is Affected.SELF
        kept = own if is_own else others
        if len(kept) < MOST_EVENTS:
            kept.append(_Entry(place, key, event, item_defects))
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


def _invalid(problem: str) -> ImdsError:
    return ImdsError(PollOutcome.INVALID_DOCUMENT, f"not a document of scheduled events: {problem}")


def _decode_whole(body: bytes) -> tuple[_RawDocument, tuple[str, ...]]:
    """Return the document, and the doubts about events with a replaced character."""
    try:
        # msgspec does not check the parts that it leaves as they are.
        body.decode()
        return _document_decoder.decode(body), ()
    except (msgspec.ValidationError, RecursionError) as error:
        raise _invalid(cause(error)) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        # For msgspec, one lone surrogate (a text cut in the middle of an emoji) makes the whole document
        # invalid.
        try:
            raw = _document_decoder.decode(_with_replacements(body))
        except (msgspec.MsgspecError, RecursionError):
            raise _invalid(cause(error)) from error
        return raw, (f"Document: invalid Unicode was replaced: {cause(error)}",)


def _with_replacements(body: bytes) -> bytes:
    """Return the JSON with each invalid character replaced by U+FFFD."""
    valid = body.decode(errors="replace").encode()
    return _ESCAPES.sub(lambda match: _REPLACED if match[1] else match[0], valid)


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
    problem = "is missing" if value is None else f"{excerpt(value)} is not a whole number of 64 bits"
    defects.append(Defect("", f"DocumentIncarnation: {problem}; no event is taken as cancelled", lost=False))
    return None


def _decode_event(
    item: msgspec.Raw, doubts: tuple[str, ...], instance: str | None, defects: list[Defect]
) -> ScheduledEvent | None:
    notes: list[str] = []
    try:
        raw = _event_decoder.decode(item)
        _require_id(raw.event_id)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        event_id = _readable_id(item)
        # Without its position, which changes with the other events: this is to be logged once.
        which = f"event {event_id}" if event_id else "event without a readable id"
        defects.append(Defect(event_id, f"{which}: {cause(error)}", lost=True))
        return None
    replaced = doubts if doubts and _REPLACED in bytes(item) else ()
    event = ScheduledEvent(
        event_id=raw.event_id,
        event_type=_required_word("EventType", "a type", raw.event_type, _TYPES, notes),
        event_status=_required_word("EventStatus", "a status", raw.event_status, _STATUSES, notes),
        resources=names_of(raw.resources, notes, instance),
        not_before=time_of(raw.not_before, notes),
        duration_seconds=duration_of(raw.duration, notes),
        description=text_of("Description", raw.description, notes, longest=LONGEST_TEXT),
        event_source=_word("EventSource", text_of("EventSource", raw.event_source, notes), _SOURCES, notes),
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
        text = msgspec.json.decode(_id_decoder.decode(item).event_id)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return text if isinstance(text, str) and text.strip() and len(text) <= LONGEST_NAME else ""
