"""Decoding of the fields of an event; what cannot be read becomes a note, and leaves the field empty."""

import math
import re
import reprlib
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from exporter.model.events import CANCELED, COMPLETED, LONGEST_NAME, SCHEDULED, STARTED, UNKNOWN

# Statuses are compared without regard to case; every other status is kept as Azure wrote it.
_STATUSES = {status.lower(): status for status in (SCHEDULED, STARTED, COMPLETED, CANCELED)} | {
    "cancelled": CANCELED
}
LONGEST_TEXT = 2000
LONGEST_NAMES = 64 * 1024  # all names of an event together
_LONGEST_EXCERPT = 80
# Longer durations, over a century, are errors.
_LONGEST_DURATION = 4e9
# The standard library supports neither second 60 nor hour 24.
_LEAP_SECOND = re.compile(r"(:[0-5]\d:)60(?!\d)")
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


def status_of(value: object, notes: list[str]) -> str:
    """Return the status; a known one in Azure's spelling."""
    text = value.strip() if isinstance(value, str) else ""
    if text and len(text) <= LONGEST_NAME:
        return _STATUSES.get(text.lower(), str(value))
    found = "it is missing" if value is None else f"{excerpt(value)} is not a status"
    notes.append(f"EventStatus: {found}")
    return UNKNOWN


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
    try:
        seconds = (
            float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
        )
    except (ValueError, OverflowError):
        seconds = None
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
    """Parse a NotBefore: RFC 1123 (ignoring the weekday) or ISO 8601; no zone means UTC, blank is None.

    A leap second (``:60``, RFC 3339 section 5.7) is the second after it, and 24:00 the end of the day.

    Raises:
        ValueError: the text is in neither format.
    """
    if text is None or not text.strip():
        return None
    text = text.strip()
    plain, leaps = _LEAP_SECOND.subn(r"\g<1>59", text) if ":60" in text else (text, 0)
    plain, days = _END_OF_DAY.subn(r"\g<1>00:00:00", plain) if "24:00" in plain else (plain, 0)
    try:
        is_iso = plain[:4].isdigit()
        found = datetime.fromisoformat(plain.upper()) if is_iso else parsedate_to_datetime(plain)
        aware = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        return aware + timedelta(days=days, seconds=leaps)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise ValueError(f"{text[:_LONGEST_EXCERPT]!r} is not an RFC 1123 or ISO 8601 time") from error
