"""Text and colour on a terminal; the only module that imports rich."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import Console
from rich.text import Text

from exporter.commands import table
from exporter.model.events import SCHEDULED, STARTED
from exporter.model.messages import Severity, severity
from exporter.model.views import EventView

STYLES = {
    Severity.INFO: "cyan",
    Severity.SUCCESS: "green",
    Severity.WARNING: "yellow",
    Severity.CRITICAL: "bold red",
}
_TRANSITIONS = {SCHEDULED: "scheduled", STARTED: "started"}


def console() -> Console:
    """Return the terminal, or whatever standard output is: colour only where it is wanted."""
    return Console(highlight=False, markup=False, emoji=False)


def lines(texts: Iterable[str]) -> Text:
    """Join lines, without colour."""
    return Text("\n").join(map(Text, texts))


def events(views: Sequence[EventView], now: datetime, speed: float = 1.0) -> Text:
    """Return the table of events, each in the colour of its severity."""
    if not views:
        return Text("No events are pending.")
    head, *rest = table.render(views, now, speed)
    rows = [Text(head, style="bold")]
    for view, first, second in zip(views, rest[::2], rest[1::2], strict=True):
        rows += [Text(first, style=STYLES[_severity(view)]), Text(second)]
    return Text("\n").join(rows)


def _severity(view: EventView) -> Severity:
    return severity(_TRANSITIONS.get(view.status, "advised"), view.type)
