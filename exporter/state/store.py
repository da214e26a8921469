"""What the exporter remembers: events with their history, how far the watch has come, and the work to do."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec

from exporter.clock import Clock
from exporter.health import Health
from exporter.model.jobs import Job
from exporter.model.lifecycle import ENDINGS, HISTORY, Known, Step, TrackedEvent
from exporter.model.messages import Message
from exporter.state.approvals import Approvals
from exporter.state.hook_jobs import HookJobs
from exporter.state.journal import Journal, Table
from exporter.state.outbox import Outbox

_PROGRESS = "progress"


class _Progress(msgspec.Struct, frozen=True):
    """How far the watch has come, as in `Known`."""

    incarnation: int | None = None
    last_success: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _Events(Table[str, TrackedEvent]):
    """The lives of events, by `TrackedEvent.key`."""

    def decode(self, key: bytes, value: bytes) -> tuple[str, TrackedEvent]:
        found, tracked = super().decode(key, value)
        if not tracked.ids or tracked.key != found:
            raise ValueError(f"the entry {found!r} holds another event")
        return found, tracked


class Store:
    """The memory of one exporter, which survives its sudden end; for any number of threads.

    Failures of the disk are not raised: the store carries on in memory, reports to `Health`, and catches up.
    """

    def __init__(self, directory: Path, health: Health, clock: Clock) -> None:
        self._journal = Journal(directory, health, clock)
        self._clock = clock
        self._events = _Events(self._journal, "event", str, TrackedEvent)
        self._watch = Table(self._journal, "watch", str, _Progress)
        self.outbox = Outbox(self._journal)
        self.hook_jobs = HookJobs(self._journal)
        self.approvals = Approvals(self._journal)

    @classmethod
    def open(cls, directory: Path, *, health: Health, clock: Clock) -> "Store":
        """Open the state in a directory, which is created (mode 0700) where it is missing.

        Raises:
            StateDirectoryInUseError: another exporter uses it.
        """
        store = cls(directory, health, clock)
        store._journal.open()
        return store

    def load(self) -> Known:
        """Return what is remembered, each mapping oldest first; the past for `HISTORY` back from now."""
        oldest = self._clock.now() - HISTORY
        lives = self._events.snapshot()
        past = [
            (life.ended, key, life) for key, life in lives if life.ended is not None and life.ended >= oldest
        ]
        current = [(life.first_seen, key, life) for key, life in lives if life.ended is None]
        progress = dict(self._watch.snapshot()).get(_PROGRESS, _Progress())
        return Known(
            incarnation=progress.incarnation,
            last_success=progress.last_success,
            current={key: life for _, key, life in sorted(current, key=lambda one: one[0])},
            past={key: life for _, key, life in sorted(past, key=lambda one: one[0])},
        )

    def record(self, step: Step, messages: Sequence[Message] = (), jobs: Sequence[Job] = ()) -> None:
        """Write down what one document caused, whom to tell, and which hooks to run, in one transaction.

        Nothing is written where it changed nothing.
        """
        if not step.writes:
            return
        over = [one.tracked.key for one in step.occurrences if one.transition in ENDINGS]
        with self._journal.transaction() as transaction:
            self.outbox.forget(transaction, step.forgotten)
            self.hook_jobs.forget(transaction, step.forgotten)
            self.hook_jobs.drop(transaction, [*over, *step.forgotten])
            self.outbox.add(transaction, messages)
            self.hook_jobs.add(transaction, jobs)
            for life in step.changed:
                transaction.put(self._events, life.key, life)
            for key in (*step.forgotten, *self._outdated(step.known.last_success)):
                transaction.delete(self._events, key)
            progress = _Progress(step.known.incarnation, step.known.last_success)
            transaction.put(self._watch, _PROGRESS, progress)

    def note_last_success(self, at: datetime) -> None:
        """Write down when the last valid document came: the next start asks for its age."""
        with self._journal.transaction() as transaction:
            before = self._watch.entries.get(_PROGRESS, _Progress())
            if before.last_success != at:
                transaction.put(self._watch, _PROGRESS, msgspec.structs.replace(before, last_success=at))

    def retry(self) -> None:
        """Try the disk again after a failure, every 10 s at most; to be called at every poll."""
        self._journal.retry()

    def close(self) -> None:
        """Write what has not been written, if possible, and release the directory."""
        self._journal.close()

    def _outdated(self, now: datetime | None) -> Iterator[str]:
        """Yield the lives that `load` left out: no step forgets them."""
        if now is not None:
            for key, life in self._events.entries.items():
                if life.ended is not None and life.ended < now - HISTORY:
                    yield key
