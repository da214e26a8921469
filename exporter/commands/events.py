"""`events`: what IMDS lists now, once or again and again, on the terminal."""

import sys
import threading
from collections.abc import Sequence
from typing import Literal

import click
import msgspec

from exporter.clock import Clock
from exporter.commands import table
from exporter.config import Config
from exporter.errors import ImdsError
from exporter.imds import ImdsClient, client_of
from exporter.model.events import decode_document
from exporter.model.snapshot import Snapshot
from exporter.model.views import EventView, listed_view


class _Answer(msgspec.Struct):
    source: Literal["imds"]
    instance: str | None
    document_incarnation: int | None
    current: list[EventView]


def show(settings: Config, clock: Clock, *, as_json: bool, watch: bool) -> None:
    """Print what IMDS lists; with ``watch`` at every poll interval until interrupted.

    Raises:
        ImdsError: IMDS gave no usable answer, and it was to be asked once only.
    """
    client = client_of(settings.imds, clock)
    snapshot = Snapshot(endpoint=client.endpoint, instance=settings.instance.name or None)
    listed: list[EventView] = []
    pause = threading.Event()
    try:
        while True:
            try:
                snapshot, listed = _ask(client, snapshot)
            except ImdsError as error:
                if not watch:
                    raise
                snapshot = msgspec.structs.replace(snapshot, up=False, last_error=str(error))
            if as_json and not snapshot.up:
                # What was known before is not an answer of now, and the JSON has no place to say so.
                click.echo(f"error: {table.printable(snapshot.last_error)}", err=True)
            elif as_json:
                answer = _Answer("imds", snapshot.instance, snapshot.incarnation, listed)
                click.echo(msgspec.json.encode(answer).decode())
            else:
                _print(snapshot, listed, clock, clear=watch)
            if not watch:
                return
            pause.wait(settings.imds.poll_interval)
    except KeyboardInterrupt:
        return
    finally:
        client.close()


def _ask(client: ImdsClient, snapshot: Snapshot) -> tuple[Snapshot, list[EventView]]:
    document = decode_document(client.fetch())
    name = snapshot.instance or _name(client)
    for defect in document.defects:
        click.echo(f"warning: {table.printable(defect.message)}", err=True)
    listed = [listed_view(event, event.target(name)) for event in reversed(document.events)]
    return msgspec.structs.replace(snapshot, instance=name, up=True, incarnation=document.incarnation), listed


def _name(client: ImdsClient) -> str | None:
    try:
        return client.instance().name or None
    except ImdsError as error:
        click.echo(f"warning: this VM's name is not known: {table.printable(str(error))}", err=True)
        return None


def _print(snapshot: Snapshot, listed: Sequence[EventView], clock: Clock, *, clear: bool) -> None:
    now = clock.now()
    if clear and sys.stdout.isatty():
        click.clear()
    click.echo(table.summary(snapshot, now))
    for line in table.render(listed, now) if listed else ["No events are pending."]:
        click.echo(line)
