"""Events and other tables on a terminal: plain text that fits on 80 columns, and colours by rich."""

import re
from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from exporter.model.events import Affected, unreadable_resources
from exporter.model.messages import Severity, severity
from exporter.model.views import EventView
from exporter.model.wording import count, printable
from exporter.timefmt import format_duration

STYLES = {
    Severity.INFO: "cyan",
    Severity.SUCCESS: "green",
    Severity.WARNING: "yellow",
    Severity.CRITICAL: "bold red",
}
WIDTH = 80
_HEAD = ("TYPE", "STATUS", "STARTS", "LASTS", "EVENT ID")
_GAP = "  "
_GUID = 36
# A shorter part of a word is not useful.
_LEAST = 9
_UNIT = re.compile(r"\d+\D+")
_WHOM = {Affected.SELF: "this VM", Affected.OTHER: "other VMs"}


def coloured(views: Sequence[EventView], now: datetime, *, width: int = WIDTH) -> Text:
    if not views:
        return Text("No events are pending.")
    head, *rest = render(views, now, width=width)
    rows = [Text(head, style="bold")]
    for view, first, second in zip(views, rest[::2], rest[1::2], strict=True):
        transition = "started" if view.is_started else "scheduled" if view.is_scheduled else "advised"
        rows += [Text(first, style=STYLES[severity(transition, view.type)]), Text(second)]
    return Text("\n").join(rows)


def render(views: Sequence[EventView], now: datetime, *, width: int = WIDTH) -> list[str]:
    """Return the table of events: a head line, and two lines for each.

    Only an event id longer than a GUID makes a line longer than ``width``, which is at least `WIDTH`.
    Control characters that Azure sent are replaced.
    """
    width = max(width, WIDTH)
    rows = _fitted([_HEAD, *(_row(view, now) for view in views)], width)
    return [
        rows[0],
        *(line for row, view in zip(rows[1:], views, strict=True) for line in (row, _whom(view, width))),
    ]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, with control characters replaced."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def span(seconds: float) -> str:
    """Return a span of time in its two largest units: ``6d23h``."""
    return "".join(_UNIT.findall(format_duration(round(abs(seconds))))[:2])


def _fitted(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Align a table, and shorten its first two columns as far as its width requires."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD) - 1)]
    excess = sum(widths) + len(_GAP) * len(widths) + _GUID - width
    for column in (0, 1):
        room = max(widths[column] - excess, min(widths[column], _LEAST))
        excess -= widths[column] - room
        for row in cells:
            row[column] = cut(row[column], room)
    return aligned(cells)


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _row(view: EventView, now: datetime) -> tuple[str, ...]:
    duration = view.duration_seconds
    lasts = "unknown" if duration is None else span(duration)
    return view.type, view.status, _starts(view, now), lasts, view.id


def _whom(view: EventView, width: int) -> str:
    """Return the VMs that an event affects, as many as fit on the line, and who requested it."""
    source = f"; requested by {printable(view.source)}" if view.source else ""
    names = [printable(name) for name in view.resources]
    is_cut = unreadable_resources(view.doubts)
    if not names:
        why = "the names could not be read" if is_cut else "Azure names none"
        return cut(f"  affects {_WHOM[view.target]} ({why}){source}", width)
    source = f" (incomplete){source}" if is_cut else source
    for shown in range(len(names), 0, -1):
        rest = len(names) - shown
        more = f" and {rest} more" if rest else ""
        line = f"  affects {_WHOM[view.target]}: {', '.join(names[:shown])}{more}{source}"
        if len(line) <= width:
            return line
    return cut(f"  affects {_WHOM[view.target]}: {count(len(names), 'VM')}{source}", width)


def _starts(view: EventView, now: datetime) -> str:
    if view.started is not None:
        return f"{span((now - view.started).total_seconds())} ago"
    if view.is_started:
        return "under way"
    if view.not_before is None:
        return "unknown"
    left = round((view.not_before - now).total_seconds())
    return f"in {span(left)}" if left > 0 else "any moment"
