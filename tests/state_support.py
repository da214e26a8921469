import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from exporter.health import DegradedReason, Health
from exporter.model.advance import advance
from exporter.model.documents import Document
from exporter.model.events import SCHEDULED, STARTED, ScheduledEvent
from exporter.model.lifecycle import Life, Step, WatchState
from exporter.state.store import Store
from tests.clocks import HandClock

START = datetime(2026, 11, 21, 1, 30, tzinfo=UTC)
_EVENTS_PER_STEP = 5
_NOBODY = 65534


class StateFixture:
    """One exporter's state directory with its clock and health; the store can be closed and opened again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = HandClock(START)
        self.health = Health(self.clock)
        self._stores: list[Store] = []

    @property
    def path(self) -> Path:
        return self.directory / "state.db"

    def open(self) -> Store:
        """Open the store anew, after closing the one before it."""
        self.close()
        self._stores.append(Store.open(self.directory, health=self.health, clock=self.clock))
        return self._stores[-1]

    def close(self) -> None:
        while self._stores:
            self._stores.pop().close()

    def remember(self, steps: int) -> None:
        """Record the steps 1 to ``steps`` in a new directory, and stop."""
        store = self.open()
        for number in range(1, steps + 1):
            store.record(nth_step(replay(number - 1), number))
        self.close()

    def problem(self, reason: DegradedReason) -> str:
        """Return the message of a present problem; "" where there is none."""
        return next((p.message for p in self.health.problems() if p.reason is reason), "")

    def aside(self) -> list[str]:
        return sorted(p.name for p in self.directory.glob("state.db.*"))


def nth_step(known: WatchState, number: int) -> Step:
    """Return the step after incarnation ``number - 1``: five events come, five start, five end."""
    events = [
        ScheduledEvent(
            event_id=f"{generation:08X}-0000-4000-8000-{index:012X}",
            event_type="Freeze",
            event_status=STARTED if generation < number else SCHEDULED,
            resources=("vm_0", "vm_1"),
            not_before=START + timedelta(seconds=generation),
            description="Virtual machine is being paused.",
        )
        for generation in (number, number - 1)
        if generation > 0
        for index in range(_EVENTS_PER_STEP)
    ]
    document = Document(number, tuple(events))
    return advance(known, document, START + timedelta(microseconds=number), instance="vm_0", watching=True)


def replay(until: int) -> WatchState:
    """Return what is known after the steps 1 to ``until``."""
    known = WatchState()
    for number in range(1, until + 1):
        known = nth_step(known, number).state
    return known


def on_disk(directory: Path, kind: str) -> dict[Any, Any]:
    """Return the entries of one kind that the state file holds, oldest first, as another process reads it."""
    uri = f"{(directory / 'state.db').as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        rows = connection.execute("SELECT key, value FROM entries WHERE kind = ? ORDER BY position", (kind,))
        return {_hashable(msgspec.json.decode(key)): msgspec.json.decode(value) for key, value in rows}


def _hashable(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key


def alter(directory: Path, statement: str, *parameters: object) -> None:
    """Change the state file behind the exporter's back."""
    with closing(sqlite3.connect(directory / "state.db")) as connection:
        connection.execute(statement, parameters)
        connection.commit()


@contextmanager
def no_room_for_files(beyond: int = 0) -> Iterator[None]:
    """Make writes to files fail beyond so many bytes, as a broken disk or a quota does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (beyond, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Obey permission bits, which do not apply to root."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def life_of(event_id: str) -> Life:
    return Life(ScheduledEvent(event_id, "Freeze", SCHEDULED), (event_id,), START)
