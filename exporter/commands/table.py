"""Events as a table on a terminal, for `events` and `demo`."""

from collections.abc import Sequence
from datetime import datetime

from exporter.model.events import STARTED
from exporter.model.snapshot import Snapshot
from exporter.model.views import EventView
from exporter.timefmt import format_duration, rfc3339

_HEAD = ("TYPE", "STATUS", "STARTS", "LASTS", "SOURCE", "TARGET", "RESOURCES", "EVENT ID")
_NAMES = 3


def render(views: Sequence[EventView], now: datetime) -> list[str]:
    """Return the lines of a table; what Azure wrote is stripped of control characters."""
    return aligned([_HEAD, *(_row(view, now) for view in views)])


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, its columns as wide as they must be; nothing in it steers the terminal."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def summary(snapshot: Snapshot, now: datetime) -> str:
    """Return in a line whether the watch works, and for whom."""
    name = snapshot.instance or "an unnamed VM"
    if snapshot.up:
        return f"{name}: {snapshot.endpoint} answers; incarnation {snapshot.incarnation}; {rfc3339(now)}"
    reason = snapshot.last_error or "not asked yet"
    return f"{name}: {snapshot.endpoint} does not answer: {reason}; {rfc3339(now)}"


def printable(text: str) -> str:
    """Replace what would steer the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _row(view: EventView, now: datetime) -> tuple[str, ...]:
    return (
        view.type,
        view.status,
        _starts(view, now),
        "unknown" if view.duration_seconds is None else format_duration(view.duration_seconds),
        view.source or "-",
        view.target.value,
        _resources(view.resources),
        view.id,
    )


def _resources(names: Sequence[str]) -> str:
    # A hundred VMs would push everything else off the screen; `--json` has them all.
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ",".join(names[:_NAMES]) + more or "-"


def _starts(view: EventView, now: datetime) -> str:
    if view.started is not None:
        return f"{format_duration(round((now - view.started).total_seconds()))} ago"
    if view.status == STARTED:
        return "under way"
    if view.not_before is None:
        return "unknown"
    left = round((view.not_before - now).total_seconds())
    return f"in {format_duration(left)}" if left > 0 else "any moment"
