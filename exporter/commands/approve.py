"""`approve`: approve events by hand, after showing them and the VMs that they affect."""

import math
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import TypeVar

import click

from exporter.clock import Clock
from exporter.commands import terminal
from exporter.commands.events import chosen
from exporter.config import Config
from exporter.errors import ExporterError, ImdsError, PollOutcome
from exporter.imds.client import ImdsClient, PollPauses, client_of
from exporter.model.advance import advance
from exporter.model.documents import Document, decode_document
from exporter.model.events import SCHEDULED, ScheduledEvent, lower
from exporter.model.lifecycle import Transition, WatchState
from exporter.model.views import listed_view
from exporter.model.wording import printable
from exporter.timefmt import format_duration

T = TypeVar("T")

_TRIES = 4
_PATIENCE_SECONDS = 60.0  # a request that has failed for longer than this is not a temporary problem
_MOMENTARY = (PollOutcome.TIMEOUT, PollOutcome.CONNECTION_ERROR, PollOutcome.THROTTLED)
# Transitions that end the wait for an event, with exit status and message.
_OUTCOMES = {
    Transition.STARTED: (0, "has started"),
    Transition.COMPLETED: (0, "has completed"),
    Transition.CANCELLED: (3, "was cancelled before it started"),
    Transition.VANISHED: (1, "disappeared; whether it started is unknown"),
}


def run(settings: Config, event_ids: Sequence[str], clock: Clock, *, yes: bool, wait: float | None) -> int:
    """Show the events, ask unless ``yes``, approve them, and wait up to ``wait`` seconds for their start.

    Return the exit status: 1 if the answer was no, or if an event's outcome is not known in the end; 3 if one
    was cancelled.

    Raises:
        ExporterError: one of them is not listed, has started, or changed before the answer; nothing is
            approved then. Or IMDS gave no usable answer.
    """
    client = client_of(settings.imds, clock)
    imds = _Imds(client, settings.imds.poll_interval, clock)
    try:
        document, wanted = _wanted(imds, event_ids)
        _show(wanted, settings.instance.name or _name(client), clock)
        if not yes:
            if not _agreed(wanted):
                click.echo("Nothing was approved.")
                return 1
            # The confirmation is for the events as shown, and may have taken long.
            document, still_wanted = _wanted(imds, [event.event_id for event in wanted])
            if still_wanted != wanted:
                raise ExporterError("something changed meanwhile; nothing was approved; look again")
        for event in wanted:
            imds.approve(event.event_id)
            click.echo(f"Approved: {printable(event.event_id)}")
        return 0 if wait is None else _wait(imds, Followed(document, wanted, clock.now()), wait, clock)
    finally:
        client.close()


class _Imds:
    """A client of IMDS that retries requests after temporary errors."""

    def __init__(self, client: ImdsClient, interval: float, clock: Clock) -> None:
        self._client = client
        self._interval = interval
        self._clock = clock
        self.deadline = math.inf  # when `pause` raises TimeoutError, on the monotonic clock

    def document(self, passing: Collection[PollOutcome] = _MOMENTARY) -> Document:
        """Return the newest document; retry after the failures ``passing``, raise ImdsError after others."""
        return self._ask(lambda: decode_document(self._client.fetch()), passing)

    def approve(self, event_id: str) -> None:
        self._ask(lambda: self._client.approve(event_id), _MOMENTARY)

    def pause(self, seconds: float | None = None) -> None:
        """Wait for some seconds, by default for the poll interval; raise TimeoutError at the time limit."""
        left = self.deadline - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError
        time.sleep(min(self._interval if seconds is None else seconds, left))

    def _ask(self, request: Callable[[], T], passing: Collection[PollOutcome]) -> T:
        began, tries, told = self._clock.monotonic(), 1, ""
        pauses = PollPauses(self._interval, clock=self._clock)
        while True:
            try:
                return request()
            except ImdsError as error:
                took = self._clock.monotonic() - began + error.retry_after
                lasting = tries == _TRIES or took > _PATIENCE_SECONDS
                # The time limit alone ends the wait for a start: IMDS may be updated for a minute.
                if (lasting and self.deadline == math.inf) or error.reason not in passing:
                    raise
                pause = max(pauses.failed(), error.retry_after)
                if str(error) != told:
                    told = str(error)
                    click.echo(f"warning: {printable(told)}; trying again", err=True)
            tries += 1
            self.pause(pause)


class Followed:
    """Approved events, followed through documents until their outcomes are known."""

    def __init__(self, document: Document, events: Iterable[ScheduledEvent], now: datetime) -> None:
        self._state = WatchState()
        self._waiting = {event.key for event in events}
        self.observe(document, now)

    @property
    def waiting(self) -> list[ScheduledEvent]:
        """The events whose outcome is not known yet, as last seen."""
        return [life.event for life in self._state.current.values() if lower(life.ids[0]) in self._waiting]

    def observe(self, document: Document, now: datetime) -> list[tuple[str, Transition]]:
        """Return the ids of the events whose outcome is known with this document, each with its outcome."""
        step = advance(self._state, document, now, instance=None, watching=True)
        self._state = step.state
        outcomes = [
            occurrence
            for occurrence in step.occurrences
            # With another type the event goes on.
            if occurrence.transition in _OUTCOMES and occurrence.life.changed_to is None
            if lower(occurrence.life.ids[0]) in self._waiting
        ]
        self._waiting -= {lower(occurrence.life.ids[0]) for occurrence in outcomes}
        return [(occurrence.life.ids[0], occurrence.transition) for occurrence in outcomes]


def _wait(imds: _Imds, followed: Followed, seconds: float, clock: Clock) -> int:
    imds.deadline = clock.monotonic() + seconds
    statuses = {0}
    try:
        click.echo("Waiting for the start. Ctrl-C stops waiting; the approval stays.")
        while True:
            document = imds.document(tuple(PollOutcome))
            for event_id, transition in followed.observe(document, clock.now()):
                status, words = _OUTCOMES[transition]
                click.echo(f"{printable(event_id)} {words}")
                statuses.add(status)
            if not followed.waiting:
                return max(statuses, key=(0, 3, 1).index)
            imds.pause()
    except TimeoutError:
        left = ", ".join(printable(event.event_id) for event in followed.waiting)
        late = f"Not started within {format_duration(seconds)}: {left}"
        click.echo(f"{late}; what was approved stays approved.")
    except KeyboardInterrupt:
        click.echo("Not waiting any longer; what was approved stays approved.")
    return 1


def _wanted(imds: _Imds, event_ids: Sequence[str]) -> tuple[Document, list[ScheduledEvent]]:
    """Return the newest document, and its events of these ids or their beginnings, each once."""
    document = imds.document()
    events = [_scheduled(document, event_id) for event_id in event_ids]
    return document, list({event.key: event for event in events}.values())


def _scheduled(document: Document, event_id: str) -> ScheduledEvent:
    event = chosen(event_id, document.events, lambda event: [event.event_id], "; nothing was approved")
    if event.event_status != SCHEDULED:
        status = printable(event.event_status)
        raise ExporterError(
            f"{printable(event.event_id)} is {status}, and only a Scheduled event can be approved; "
            "nothing was approved"
        )
    return event


def _show(events: Sequence[ScheduledEvent], instance: str | None, clock: Clock) -> None:
    now = clock.now()
    views = [listed_view(event, event.target(instance)) for event in events]
    # Every VM is listed, because the event starts for all of them.
    click.echo(terminal.table(views, now, most=sys.maxsize).plain)
    for event in events:
        for doubt in event.doubts:
            problem = f"part of {printable(event.event_id)} could not be read ({printable(doubt)})"
            click.echo(f"warning: {problem}")


def _agreed(events: Sequence[ScheduledEvent]) -> bool:
    what = "this event" if len(events) == 1 else f"these {len(events)} events"
    if sys.stdin is None or sys.stdout is None:
        return False
    try:
        return click.confirm(f"Let {what} start now, for all VMs affected?")
    except click.Abort:
        click.echo("")
        return False


def _name(client: ImdsClient) -> str | None:
    try:
        return client.instance().name or None
    except ImdsError:
        return None
