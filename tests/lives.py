"""A watch without I/O: documents go in one after another, and what they did comes out."""

from datetime import datetime, timedelta

from exporter.model.advance import advance
from exporter.model.documents import Document
from exporter.model.events import ScheduledEvent
from exporter.model.lifecycle import Life, Step, Transition, WatchState
from tests.clocks import NOW


class Story:
    """Feeds documents to `exporter.model.advance.advance`, a second apart, the incarnation growing by one."""

    def __init__(self, instance: str | None = "WestNO_0") -> None:
        self.state = WatchState()
        self.now = NOW
        self.incarnation = 0
        self.instance = instance
        self.watching = False

    def feed(self, *events: ScheduledEvent, after: timedelta = timedelta(seconds=1)) -> Step:
        self.now += after
        self.incarnation += 1
        document = Document(self.incarnation, events)
        step = advance(self.state, document, self.now, instance=self.instance, watching=self.watching)
        self.state = step.state
        self.watching = True
        return step

    @property
    def current(self) -> list[Life]:
        return list(self.state.current.values())

    @property
    def past(self) -> list[Life]:
        return list(self.state.past.values())


def happened(step: Step) -> list[tuple[str, Transition]]:
    """Return the transitions of a step, each with the id that Azure uses for the event now."""
    return [(o.life.event.event_id, o.transition) for o in step.occurrences]


def at(seconds: float) -> datetime:
    """Return the time of the document that a `Story` was fed ``seconds`` after its beginning."""
    return NOW + timedelta(seconds=seconds)
