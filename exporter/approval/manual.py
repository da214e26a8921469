"""`approve`: let events proceed by hand, after showing what they are and whom they hit."""

import sys
import threading
from collections.abc import Sequence

import click

from exporter import table
from exporter.clock import Clock
from exporter.config import Config
from exporter.discovery import client_of
from exporter.errors import ExporterError, ImdsError
from exporter.events import SCHEDULED, Document, ScheduledEvent, decode_document
from exporter.imds import ImdsClient
from exporter.views import listed_view


class NotPendingError(ExporterError):
    """An event that is to be approved is not Scheduled."""


def run(settings: Config, event_ids: Sequence[str], clock: Clock, *, yes: bool, wait: bool) -> int:
    """Show the events, ask unless ``yes``, approve them, and with ``wait`` wait until they have started.

    Gives the exit status: 1 where the answer was no, or Ctrl-C ended the waiting.

    Raises:
        NotPendingError: one of them is not listed, has started, or changed while somebody thought about the
            answer; nothing is approved then.
        ImdsError: IMDS gave no usable answer.
    """
    client = client_of(settings.imds, clock)
    try:
        wanted = _wanted(client, event_ids)
        _show(wanted, settings.instance.name or _name(client), clock)
        if not yes:
            if not _agreed(wanted):
                click.echo("Nothing was approved.")
                return 1
            # The answer is about what was shown, and may have taken long.
            if _wanted(client, event_ids) != wanted:
                raise NotPendingError("something changed meanwhile; nothing was approved; look again")
        client.approve([event.event_id for event in wanted])
        click.echo(f"Approved: {', '.join(table.printable(event.event_id) for event in wanted)}")
        return 0 if not wait or _wait(client, wanted, settings.imds.poll_interval) else 1
    finally:
        client.close()


def _wanted(client: ImdsClient, event_ids: Sequence[str]) -> list[ScheduledEvent]:
    """Give the events of these ids, each once."""
    document = decode_document(client.fetch())
    found = [_scheduled(document, event_id) for event_id in event_ids]
    return list({event.key: event for event in found}.values())


def _scheduled(document: Document, event_id: str) -> ScheduledEvent:
    found = next((event for event in document.events if event.key == event_id.strip().lower()), None)
    if found is None:
        listed = ", ".join(table.printable(event.event_id) for event in document.events) or "none"
        raise NotPendingError(
            f"{table.printable(event_id)} is not pending; nothing was approved. Pending events: {listed}"
        )
    if found.event_status != SCHEDULED:
        status = table.printable(found.event_status)
        raise NotPendingError(f"{table.printable(found.event_id)} is {status} already; nothing was approved")
    return found


def _show(events: Sequence[ScheduledEvent], instance: str | None, clock: Clock) -> None:
    now = clock.now()
    views = [listed_view(event, event.target(instance)) for event in events]
    for line in table.render(views, now):
        click.echo(line)
    for event in events:
        names = ", ".join(map(table.printable, event.resources)) or "not said by Azure"
        click.echo(f"{table.printable(event.event_id)} hits {len(event.resources)} VMs: {names}")


def _agreed(events: Sequence[ScheduledEvent]) -> bool:
    what = "this event" if len(events) == 1 else f"these {len(events)} events"
    if sys.stdin is None or sys.stdout is None:
        return False
    try:
        return click.confirm(f"Let {what} start now, for all VMs named above?")
    except click.Abort:
        click.echo("")
        return False


def _wait(client: ImdsClient, events: Sequence[ScheduledEvent], interval: float) -> bool:
    """Wait until none of them is Scheduled; tell whether it came to that before Ctrl-C."""
    click.echo("Waiting for the start; Ctrl-C ends the waiting alone.")
    waiting = {event.key: event for event in events}
    pause = threading.Event()
    try:
        while waiting := _still_scheduled(client, waiting):
            sys.stdout.flush()
            pause.wait(interval)
    except KeyboardInterrupt:
        click.echo("Not waiting any longer; what was approved stays approved.")
    return not waiting


def _still_scheduled(client: ImdsClient, waiting: dict[str, ScheduledEvent]) -> dict[str, ScheduledEvent]:
    """Give those that still wait for their start, and tell what became of the others."""
    try:
        listed = {event.key: event for event in decode_document(client.fetch()).events}
    except ImdsError as error:
        click.echo(f"warning: {table.printable(str(error))}", err=True)
        return waiting
    left = {}
    for key, event in waiting.items():
        if key in listed and listed[key].event_status == SCHEDULED:
            left[key] = event
        else:
            said = "has started" if key in listed else "is gone"
            click.echo(f"{table.printable(event.event_id)} {said}")
    return left


def _name(client: ImdsClient) -> str | None:
    try:
        return client.instance().name or None
    except ImdsError:
        return None
