"""Times in RFC 3339, in UTC, durations in Prometheus' format, and types of numbers and texts in files."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, overload

import msgspec

UtcTime = Annotated[datetime, msgspec.Meta(tz=True)]


@overload
def rfc3339(at: datetime, *, milliseconds: bool = ...) -> str: ...
@overload
def rfc3339(at: None, *, milliseconds: bool = ...) -> None: ...


def rfc3339(at: datetime | None, *, milliseconds: bool = False) -> str | None:
    """Return an aware time as ``2026-01-02T03:04:05Z``, with a fraction only for ``milliseconds``."""
    if at is None:
        return None
    text = at.astimezone(UTC).isoformat(timespec="milliseconds" if milliseconds else "seconds")
    return text.replace("+00:00", "Z")


# As JSON writes numbers, with a plus sign and leading zeros.
_NUMBER = "[+-]?[0-9]+(?:[.][0-9]+)?(?:[eE][+-]?[0-9]+)?"


def parse_number(text: str) -> float:
    """Return a decimal number, or raise ValueError.

    `float` also takes underscores, digits of other scripts, "inf" and "nan": "0_8" is 8.
    """
    if not re.fullmatch(_NUMBER, text.strip()):
        raise ValueError("is not a decimal number")
    return float(text)


_UNITS = {"y": 31_536_000.0, "w": 604_800.0, "d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_LONGEST = 100 * _UNITS["y"]  # longer ones would exceed the range of datetimes
_LONGEST_RETRY_AFTER = 300.0
# Compiled on first use, as many starts need no durations.
_FORM = "(?a)" + "".join(rf"(?:(\d+){unit})?" for unit in _UNITS)


def format_duration(seconds: float) -> str:
    """Return seconds in the format of `parse_duration`, to the millisecond."""
    left = round(seconds * 1000)
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, left = divmod(left, round(_UNITS[unit] * 1000))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_duration(value: object) -> float:
    """Return a duration in seconds.

    Units are ordered from the largest, each at most once, as in Prometheus' configuration; ``0`` needs none.

    Raises:
        ValueError: the text is not a valid duration, or one of more than 100 years.
    """
    text = str(value)
    if text == "0":
        return 0.0
    match = re.fullmatch(_FORM, text)
    if not text or match is None:
        raise ValueError("is not a valid duration; write it like 500ms, 1s, 15m, 1h30m or 7d")
    # As floats: too many digits become infinity instead of an exception.
    seconds = sum(float(n) * unit for n, unit in zip(match.groups(), _UNITS.values(), strict=True) if n)
    if seconds > _LONGEST:
        raise ValueError("is too long; write at most 100y")
    return seconds


def parse_retry_after(value: str, now: datetime) -> float | None:
    """Return the seconds to wait by the header ``Retry-After``, at most 300; None if it cannot be read.

    It is a number of seconds or a date: https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3
    """
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text), _LONGEST_RETRY_AFTER)
    try:
        at = parsedate_to_datetime(text)
        seconds = ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds()
    except (ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER)


def parsed(parse: Callable[[object], object], **schema: Any) -> msgspec.Meta:
    """Return the annotation of values that ``parse`` converts; ``schema`` describes them as written."""
    return msgspec.Meta(extra={"parse": parse}, extra_json_schema=schema)


# JSON schemas have no lookahead, so this also accepts units out of order.
DURATION_PATTERN = r"^(0|([0-9]+(y|w|d|h|m|s|ms))+)$"
# 0 needs no unit, and is a number in YAML then.
DURATION: dict[str, Any] = {"pattern": DURATION_PATTERN, "minimum": 0, "maximum": 0}
Duration = Annotated[float, parsed(parse_duration, **DURATION)]
