"""Times and lengths of time, in words; the services that show them add none of their own."""

from datetime import UTC, datetime

from exporter.model.wording import count

UNKNOWN = "unknown"


def utc(at: object) -> str:
    """Write an aware time as ``2026-03-04 22:15:00 UTC``; ``unknown`` for None; the rest as it is."""
    if isinstance(at, datetime):
        return at.astimezone(UTC).isoformat(sep=" ", timespec="seconds")[:19] + " UTC"
    return UNKNOWN if at is None else str(at)


def duration(seconds: float | None) -> str:
    """Return how long: ``45 seconds``, ``14 minutes``, ``3 hours 12 minutes``; ``unknown`` for None.

    Under two minutes it is exact to the second, under two hours to the minute, under two days to the
    minute, and else to the hour, rounded to the nearest.
    """
    if seconds is None:
        return UNKNOWN
    whole = round(seconds)
    if whole < 120:
        return count(max(0, whole), "second")
    minutes = round(seconds / 60)
    if minutes < 120:
        return count(minutes, "minute")
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return _two(hours, "hour", rest, "minute")
    days, rest = divmod(round(seconds / 3600), 24)
    return _two(days, "day", rest, "hour")


def relative(at: datetime | None, now: datetime) -> str:
    """Return how far off a time is: ``in 14 minutes``, ``3 seconds ago``, ``now``; ``unknown`` for None."""
    if at is None:
        return UNKNOWN
    ahead = (at - now).total_seconds()
    if abs(ahead) < 0.5:
        return "now"
    return f"in {duration(ahead)}" if ahead > 0 else f"{duration(-ahead)} ago"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{count(large, large_unit)} {count(small, small_unit)}" if small else count(large, large_unit)
