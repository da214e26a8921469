"""The table of events on a terminal, with colours by rich.

Columns of a known width come first, and texts of any length last, so that no id, type or name is cut.
"""

import re
from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from exporter.model.events import Affected, unreadable_resources
from exporter.model.messages import Severity, severity
from exporter.model.views import EventView
from exporter.model.wording import VMS_SHOWN, names, printable
from exporter.timefmt import format_duration

STYLES = {
    Severity.INFO: "cyan",
    Severity.SUCCESS: "green",
    Severity.WARNING: "yellow",
    Severity.CRITICAL: "bold red",
}
# A GUID has 36 characters; with the types that Azure schedules, a row fits on 80 columns.
_ROW = "{:<36}  {:<9}  {:<10}  {:<7}  {}"
_HEAD = _ROW.format("EVENT ID", "STATUS", "STARTS", "LASTS", "TYPE")
_UNIT = re.compile(r"\d+\D+")
_WHOM = {Affected.SELF: "this VM", Affected.OTHER: "other VMs"}


def table(views: Sequence[EventView], now: datetime, *, most: int = VMS_SHOWN) -> Text:
    """Return the table of events, without control characters, and with ``most`` names of VMs."""
    if not views:
        return Text("No events are pending.")
    lines = [Text(_HEAD, style="bold")]
    for view in views:
        transition = "started" if view.is_started else "scheduled" if view.is_scheduled else "advised"
        lines.append(Text(printable(_row(view, now)), style=STYLES[severity(transition, view.type)]))
        lines.append(Text(printable(_whom(view, most))))
    return Text("\n").join(lines)


def span(seconds: float) -> str:
    """Return a span of time in its two largest units: ``6d23h``."""
    return "".join(_UNIT.findall(format_duration(round(abs(seconds))))[:2])


def _row(view: EventView, now: datetime) -> str:
    duration = view.duration_seconds
    lasts = "unknown" if duration is None else span(duration)
    return _ROW.format(view.id, view.status, _starts(view, now), lasts, view.type)


def _whom(view: EventView, most: int) -> str:
    """Return the VMs that an event affects, and who requested it."""
    is_cut = unreadable_resources(view.doubts)
    if view.resources:
        vms = f": {names(view.resources, most)}{' (incomplete)' if is_cut else ''}"
    else:
        vms = f" ({'the names could not be read' if is_cut else 'Azure names none'})"
    source = f"; requested by {view.source}" if view.source else ""
    return f"  affects {_WHOM[view.target]}{vms}{source}"


def _starts(view: EventView, now: datetime) -> str:
    if view.started is not None:
        return f"{span((now - view.started).total_seconds())} ago"
    if view.is_started:
        return "under way"
    if view.not_before is None:
        return "unknown"
    left = round((view.not_before - now).total_seconds())
    return f"in {span(left)}" if left > 0 else "any moment"
