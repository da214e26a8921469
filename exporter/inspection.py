"""`events`: what IMDS says now, once or again and again, on the terminal."""

import sys
import threading

import click
import msgspec

from exporter import table
from exporter.clock import Clock
from exporter.config import Config
from exporter.discovery import client_of
from exporter.errors import ImdsError
from exporter.events import decode_document
from exporter.imds import ImdsClient
from exporter.lifecycle import Known, advance
from exporter.snapshot import Snapshot
from exporter.views import EventView, event_view


class _Answer(msgspec.Struct):
    instance: str | None
    document_incarnation: int | None
    events: list[EventView]


def show(settings: Config, clock: Clock, *, as_json: bool, watch: bool) -> None:
    """Print what IMDS says; with ``watch`` at every poll interval until interrupted.

    Raises:
        ImdsError: IMDS gave no usable answer, and it was to be asked once only.
    """
    client = client_of(settings.imds, clock)
    snapshot = Snapshot(endpoint=client.endpoint, instance=settings.instance.name or None)
    known = Known()
    pause = threading.Event()
    try:
        while True:
            try:
                snapshot, known = _ask(client, snapshot, known, clock)
            except ImdsError as error:
                if not watch:
                    raise
                snapshot = msgspec.structs.replace(snapshot, up=False, last_error=str(error))
            if as_json and not snapshot.up:
                # What was known before is no answer of now, and the JSON has no place to say so.
                click.echo(f"error: {table.printable(snapshot.last_error)}", err=True)
            else:
                _print(snapshot, clock, as_json=as_json, clear=watch and not as_json)
            if not watch:
                return
            pause.wait(settings.imds.poll_interval)
    except KeyboardInterrupt:
        return
    finally:
        client.close()


def _ask(client: ImdsClient, snapshot: Snapshot, known: Known, clock: Clock) -> tuple[Snapshot, Known]:
    document = decode_document(client.fetch())
    name = snapshot.instance or _name(client)
    for defect in document.defects:
        click.echo(f"warning: {table.printable(defect.message)}", err=True)
    known = advance(known, document, clock.now(), unbroken=snapshot.up).known
    return msgspec.structs.replace(
        snapshot,
        instance=name,
        up=True,
        incarnation=document.incarnation,
        current=tuple(reversed(known.current.values())),
    ), known


def _name(client: ImdsClient) -> str | None:
    try:
        return client.instance().name or None
    except ImdsError as error:
        click.echo(f"warning: this VM's name is not known: {table.printable(str(error))}", err=True)
        return None


def _print(snapshot: Snapshot, clock: Clock, *, as_json: bool, clear: bool) -> None:
    views = [event_view(tracked, snapshot.target(tracked)) for tracked in snapshot.current]
    if as_json:
        answer = _Answer(snapshot.instance, snapshot.incarnation, views)
        click.echo(msgspec.json.encode(answer).decode())
        return
    now = clock.now()
    if clear and sys.stdout.isatty():
        click.clear()
    click.echo(table.summary(snapshot, now))
    for line in table.render(views, now) if views else ["No events are pending."]:
        click.echo(line)
