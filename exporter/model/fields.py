"""Decoding of the fields of an event; what cannot be read becomes a note, and leaves the field empty."""

import math
import re
import reprlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

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
# Longer durations, over a century, are errors.
_LONGEST_DURATION = 4e9
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


def type_of(value: object, notes: list[str]) -> str:
    """Return the type; a known one in Azure's spelling."""
    return _required_word("EventType", "a type", value, _TYPES, notes)


def status_of(value: object, notes: list[str]) -> str:
    """Return the status; a known one in Azure's spelling."""
    return _required_word("EventStatus", "a status", value, _STATUSES, notes)


def source_of(value: object, notes: list[str]) -> str:
    """Return the source, which may be missing; a known one in Azure's spelling."""
    return _word("EventSource", text_of("EventSource", value, notes), _SOURCES, notes)


def _required_word(field: str, what: str, value: object, known: Mapping[str, str], notes: list[str]) -> str:
    if isinstance(value, str) and value.strip() and len(value) <= LONGEST_NAME:
        return _word(field, value, known, notes)
    found = "it is missing" if value is None else f"{excerpt(value)} is not {what}"
    notes.append(f"{field}: {found}")
    return UNKNOWN


def _word(field: str, text: str, known: Mapping[str, str], notes: list[str]) -> str:
    found = known.get(normal_word(text), text)
    if found != text and normal_word(found) == normal_word(text):
        notes.append(f"{field}: {excerpt(text)} differs from {found} in case or blanks")
    return found


def names_of(value: object, notes: list[str]) -> tuple[str, ...]:
    """Return the readable names; an event without any counts as this VM's."""
    if value is None:
        return ()
    found = value if isinstance(value, list) else [value]
    names = tuple(
        name for name in found if isinstance(name, str) and name.strip() and len(name) <= LONGEST_NAME
    )
    if len(names) < len(found) or not isinstance(value, list):
        notes.append(f"Resources: {excerpt(value)} is not a list of names")
    if (length := sum(map(len, names))) > LONGEST_NAMES:
        # Without some of them, this VM could be missed.
        notes.append(f"Resources: {len(names)} names of {length} characters; {LONGEST_NAMES} are possible")
        return ()
    return names


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
        found = datetime.fromisoformat(plain.upper()) if plain[:4].isdigit() else _rfc_time(plain)
        aware = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        return aware + timedelta(days=days, seconds=leaps)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise ValueError(f"{text[:_LONGEST_EXCERPT]!r} is not an RFC 1123 or ISO 8601 time") from error


def _rfc_time(text: str) -> datetime:
    # The standard library takes a zone that it does not know for UTC.
    if _ZONE.fullmatch(text, max(text.find(":"), 0)) is None:
        raise ValueError(f"{text!r} has no known zone")
    return parsedate_to_datetime(text)
