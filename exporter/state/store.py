"""The state of the exporter: events with their history, the progress of the watch, and jobs."""

import itertools
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from exporter.clock import Clock, Moment, renewed
from exporter.health import Health, Problem
from exporter.model.facts import Fact, OutageFact, ProblemFact, transition_fact
from exporter.model.jobs import Job
from exporter.model.lifecycle import HISTORY, Life, Step, WatchState
from exporter.model.messages import Outage, WatchChange
from exporter.model.vm import VirtualMachine
from exporter.state.disk import refuse_unsafe
from exporter.state.facts import Facts
from exporter.state.jobs import Jobs, Parts
from exporter.state.journal import Journal, Table, Transaction
from exporter.timefmt import UtcTime

_PROGRESS = "progress"

J = TypeVar("J", bound=Jobs)


class Progress(msgspec.Struct, frozen=True):
    incarnation: int | None = None
    last_success: UtcTime | None = None  # of the last valid document; after a crash, up to 15 min before it
    outage: Outage | None = None  # the current one, if it was reported
    lost: Moment | None = None  # when an earlier state was lost, None once that is over an hour ago
    failing: Moment | None = None  # since when there is no valid document, None while there is one
    boot: str = ""  # the boot on which the newest valid document was read
    instance: str | None = None  # the newest name of this VM
    instance_boot: str = ""  # the boot on which IMDS returned it
    vm_id: str = ""  # the id of the VM of that name
    problems: tuple[Problem, ...] = ()  # the problems that are active by the newest facts


class _Events(Table[str, Life]):
    def decode(self, key: bytes, value: bytes) -> tuple[str, Life]:
        life_key, life = super().decode(key, value)
        if not life.ids or life.key != life_key:
            raise ValueError(f"the entry {life_key!r} holds another event")
        return life_key, life


class Store:
    """The state of one exporter, which survives a crash; for any number of threads.

    Failures of the disk are not raised but reported to `Health`; the state is kept in memory until the disk
    works again.
    """

    def __init__(self, directory: Path, health: Health, clock: Clock) -> None:
        self._journal = Journal(directory, health, clock)
        self._clock = clock
        self._events = _Events(self._journal, "event", str, Life)
        self._watch = Table(self._journal, "watch", str, Progress)
        self.facts = Facts(self._journal, clock)
        self._has_new_readers = False  # whether some have not been told the active problems
        self._parts = Parts(self._journal, self._events, self.facts, clock)
        # What else is in the file are jobs, until their output asks for them.
        self._journal.unknown = lambda kind: Jobs(kind, self._parts)

    @classmethod
    def open(cls, directory: Path, *, health: Health, clock: Clock) -> "Store":
        """Open the state in a directory, which is created with mode 0700 if it is missing."""
        refuse_unsafe(directory)
        store = cls(directory, health, clock)
        store._journal.open()
        store._journal.recall_loss(store.progress.lost)
        store._record_loss()
        return store

    def load(self) -> WatchState:
        """Return the known events, each mapping oldest first; past ones as far back as `HISTORY`."""
        lives = [life for _, life in self._events.snapshot()]
        oldest = self._clock.now() - HISTORY
        current = sorted((life for life in lives if life.ended is None), key=lambda life: life.first_seen)
        past = sorted(
            (life for life in lives if life.ended is not None and life.ended >= oldest),
            key=lambda life: life.ended or oldest,
        )
        return WatchState(
            incarnation=self.progress.incarnation,
            last_success=self.progress.last_success,
            boot=self.progress.boot,
            current={life.key: life for life in current},
            past={life.key: life for life in past},
        )

    def jobs(self, output: str, of_type: type[J]) -> J:
        """Return the jobs of an output, which has a type of its own for them."""
        with self._journal.lock:
            former = self._journal.tables.get(output)
            if isinstance(former, of_type):
                return former
            jobs = of_type(output, self._parts)
            for key, record in former.entries.items() if former else ():
                jobs.apply(key, record)
            return jobs

    def drop_jobs(self, but: Collection[str]) -> None:
        """Delete the jobs of all outputs but these: nobody would do them."""
        with self._journal.transaction() as transaction:
            for jobs in self._all_jobs():
                for key in jobs.entries if jobs.kind not in but else ():
                    transaction.delete(jobs, key)

    def _all_jobs(self) -> list[Jobs]:
        return [table for table in self._journal.tables.values() if isinstance(table, Jobs)]

    def record(self, step: Step, jobs: Iterable[Job] = ()) -> None:
        """Record a step, and the jobs that it causes, in one transaction."""
        # An unchanged document writes nothing.
        if not step.writes:
            return
        with self._journal.transaction() as transaction:
            for each in self._all_jobs():
                each.forget(transaction, step.forgotten)
            self._add(transaction, jobs)
            self.facts.add(transaction, [transition_fact(occurrence) for occurrence in step.occurrences])
            for life in step.changed:
                transaction.put(self._events, life.key, life)
            for key in (*step.forgotten, *self._outdated(step.state.last_success)):
                transaction.delete(self._events, key)
            state = step.state
            self._put(
                transaction, incarnation=state.incarnation, last_success=state.last_success, boot=state.boot
            )

    def _add(self, transaction: Transaction, jobs: Iterable[Job]) -> None:
        for output, caused in itertools.groupby(jobs, key=lambda job: job.output):
            self.jobs(output, Jobs).add(transaction, caused)

    def unknown_until(self) -> datetime | None:
        """Return until when entries of the last hour may be missing; None if none are."""
        return self._journal.unknown_until()

    @property
    def certain_instance(self) -> str | None:
        """The last name that IMDS returned, on this boot: the disk of another VM brings that VM's name."""
        return self.progress.instance if self.progress.instance_boot == self._clock.boot else None

    @property
    def certain_vm_id(self) -> str:
        """The id of this VM if IMDS returned it on this boot, else ""."""
        return self.progress.vm_id if self.certain_instance else ""

    def record_outage(self, fact: OutageFact, jobs: Iterable[Job] = ()) -> None:
        """Record that an outage begins or ends, with the jobs that this causes."""
        with self._journal.transaction() as transaction:
            self._add(transaction, jobs)
            self.facts.add(transaction, [fact])
            self._put(transaction, outage=fact.outage if fact.change is WatchChange.BLIND else None)

    def set_readers(self, names: Collection[str]) -> dict[str, list[Fact]]:
        """Set the readers like `Facts.set_readers`; new ones will have the active problems, too."""
        has_new = not self.facts.readers >= set(names)
        lacked = self.facts.set_readers(names)
        self._has_new_readers |= has_new
        return lacked

    def record_problems(self, problems: tuple[Problem, ...], at: datetime, host: str) -> None:
        """Record which problems are active now, with a fact for each change."""
        former = {problem.identity: problem for problem in self.progress.problems}
        active = {problem.identity: problem for problem in problems}
        tells_all, self._has_new_readers = self._has_new_readers, False
        if former.keys() == active.keys() and not (tells_all and active):
            return
        over = [
            ProblemFact(problem, at, host, begins=False)
            for identity, problem in former.items()
            if identity not in active
        ]
        new = [
            # With the same time as before, so that a receiver recognises what it has already.
            ProblemFact(former.get(identity, problem), at, host, begins=True)
            for identity, problem in active.items()
            if tells_all or identity not in former
        ]
        with self._journal.transaction() as transaction:
            self.facts.add(transaction, [*over, *new])
            self._put(transaction, problems=problems)

    def record_last_success(self, at: datetime) -> None:
        self._record_progress(last_success=at)

    def record_valid(self, at: datetime, vm: VirtualMachine) -> None:
        """Record that there was a valid document, and this VM's name and id if IMDS has returned them."""
        boot = self._clock.boot
        told = {"instance": vm.name, "vm_id": vm.vm_id, "instance_boot": boot} if vm.name else {}
        self._record_progress(last_success=at, boot=boot, failing=None, **told)

    def record_failing(self, since: Moment, last_success: datetime | None) -> None:
        """Record since when there is no valid document."""
        self._record_progress(failing=since, last_success=last_success)

    def _record_progress(self, **fields: Any) -> None:
        with self._journal.transaction() as transaction:
            self._put(transaction, **fields)

    def _put(self, transaction: Transaction, **fields: Any) -> None:
        progress = replace(self.progress, **fields)
        if progress != self.progress:
            transaction.put(self._watch, _PROGRESS, progress)

    def retry(self) -> None:
        """Retry the disk after a failure, at most every 10 s; call it at every poll."""
        self._journal.retry()
        self._record_loss()

    def renew_lives(self) -> None:
        """Restart the delays of current lives that began on another boot."""
        with self._journal.transaction() as transaction:
            for key, life in self._events.entries.items():
                begun = renewed(life.begun, self._clock)
                if life.ended is None and life.begun != begun:
                    transaction.put(self._events, key, replace(life, begun=begun))

    def _record_loss(self) -> None:
        if self.progress.lost != self._journal.lost:
            self._record_progress(lost=self._journal.lost)

    def close(self) -> None:
        self._journal.close()

    @property
    def progress(self) -> Progress:
        """How far the watch has come."""
        return self._watch.entries.get(_PROGRESS, Progress())

    def _outdated(self, now: datetime | None) -> Iterator[str]:
        """Yield the lives that `load` leaves out: no step deletes them."""
        if now is not None:
            for key, life in self._events.entries.items():
                if life.ended is not None and life.ended < now - HISTORY:
                    yield key
