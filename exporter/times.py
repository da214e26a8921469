"""Times as they are written everywhere: RFC 3339, in UTC."""

from datetime import UTC, datetime
from typing import overload


@overload
def rfc3339(at: datetime, *, milliseconds: bool = False) -> str: ...
@overload
def rfc3339(at: None, *, milliseconds: bool = False) -> None: ...


def rfc3339(at: datetime | None, *, milliseconds: bool = False) -> str | None:
    """Write an aware time as ``2026-01-02T03:04:05Z``; fractions of a second only where asked for."""
    if at is None:
        return None
    text = at.astimezone(UTC).isoformat(timespec="milliseconds" if milliseconds else "seconds")
    return text.replace("+00:00", "Z")
