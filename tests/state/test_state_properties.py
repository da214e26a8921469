"""Random histories of the state beside plain models of it: failing disks, kills, restarts."""

import shutil
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from exporter.health import DegradedReason
from exporter.model.jobs import HookOutcome, Job
from exporter.model.lifecycle import Known, Occurrence, Step, TrackedEvent, Transition
from exporter.state.journal import Journal, Table
from tests.builders import scheduled
from tests.notifications.messages import message, view
from tests.state_support import START, StateFixture, no_room_for_files, on_disk

Entries = dict[str, str]


class FailingDisk(RuleBasedStateMachine):
    """A table of a journal beside a dict, on a disk that fills, loses files and gets wrong ones."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.fixture = StateFixture(Path(self.folder.name, "0"))
        self.beyond: int | None = None
        self.memory: Entries = {}
        # What a restart may find: all since the last state that was acknowledged as on disk.
        self.possible: list[Entries] = [{}]
        # Everything that ever was, which is what a file that somebody replaced may hold.
        self.ever: list[Entries] = [{}]
        self.tampered = False
        self.lives = 0
        self.open()

    def open(self) -> None:
        """Start as a new process does."""
        self.journal = Journal(self.fixture.directory, self.fixture.health, self.fixture.clock)
        self.table = Table(self.journal, "text", str, str)
        with self.disk():
            self.journal.open()
        loaded = dict(self.table.snapshot())
        assert loaded in (self.ever if self.tampered else self.possible)
        self.memory = loaded
        if not self.is_failing():
            self.caught_up()

    def disk(self) -> AbstractContextManager[None]:
        """Apply the current limit of the disk."""
        return nullcontext() if self.beyond is None else no_room_for_files(self.beyond)

    def is_failing(self) -> bool:
        """Return whether a problem with the disk is reported."""
        return self.fixture.problem(DegradedReason.STATE_UNWRITABLE) != ""

    def caught_up(self) -> None:
        """Check that the disk has exactly what memory has."""
        found = on_disk(self.fixture.directory, "text")
        assert list(found.items()) == list(self.memory.items())
        self.possible = [dict(self.memory)]
        self.tampered = False

    @rule(
        changes=st.lists(
            st.tuples(st.sampled_from("abcdef"), st.none() | st.integers(0, 12_000).map(lambda n: "x" * n)),
            min_size=1,
            max_size=4,
        )
    )
    def change(self, changes: list[tuple[str, str | None]]) -> None:
        """Change several entries in one transaction."""
        with self.disk(), self.journal.transaction() as transaction:
            for key, value in changes:
                if value is None:
                    transaction.delete(self.table, key)
                else:
                    transaction.put(self.table, key, value)
        for key, value in changes:
            if value is None:
                self.memory.pop(key, None)
            else:
                self.memory[key] = value
        self.possible.append(dict(self.memory))
        self.ever.append(dict(self.memory))
        assert transaction.is_durable is not self.is_failing()
        if transaction.is_durable:
            self.caught_up()

    @rule(beyond=st.sampled_from((0, 4096, 30_000, 60_000, 200_000)))
    def fill(self, beyond: int) -> None:
        """Limit the size of files."""
        self.beyond = beyond

    @rule()
    def free(self) -> None:
        """Remove the limit on the size of files."""
        self.beyond = None

    @rule(seconds=st.sampled_from((1.0, 9.0, 10.0)))
    def wait(self, seconds: float) -> None:
        """Advance the clock, and poll."""
        self.fixture.clock.advance(seconds)
        with self.disk():
            self.journal.retry()

    @rule()
    def recover(self) -> None:
        """Free the disk; after ten seconds and a poll it has all that memory has."""
        self.free()
        self.wait(10.0)
        assert not self.is_failing()
        self.caught_up()

    @rule(content=st.sampled_from(("nothing", "garbage", "copy")))
    def tamper(self, content: str) -> None:
        """Remove the file, or put another one in its place."""
        path, copy = self.fixture.path, Path(self.folder.name, "copy")
        if content == "copy" and not copy.exists():
            return
        self.tampered = True
        if content == "copy":
            # Another inode: a file that is written to in place is no longer the one that SQLite relies on.
            shutil.copy(copy, copy.with_name("placed"))
        elif content == "garbage":
            copy.with_name("placed").write_bytes(b"garbage" * 1000)
        for name in ("state.db-wal", "state.db-shm", "state.db"):
            path.with_name(name).unlink(missing_ok=True)
        if content != "nothing":
            copy.with_name("placed").rename(path)

    @precondition(lambda self: self.fixture.path.exists())
    @rule()
    def keep_a_copy(self) -> None:
        """Keep what the file holds without its log."""
        shutil.copy(self.fixture.path, Path(self.folder.name, "copy"))

    @rule()
    def restart(self) -> None:
        """Stop, and start again."""
        with self.disk():
            self.journal.close()
        if self.beyond is None:
            self.caught_up()
        self.open()

    @rule()
    def kill(self) -> None:
        """Die, and start again: what is found is what the disk has at this moment."""
        self.lives += 1
        killed = StateFixture(Path(self.folder.name, str(self.lives)))
        shutil.copytree(self.fixture.directory, killed.directory)
        self.journal.close()
        self.fixture = killed
        self.open()

    @invariant()
    def memory_is_right(self) -> None:
        """Check that memory has what was put, in its order, whatever the disk does."""
        assert self.table.snapshot() == list(self.memory.items())

    def teardown(self) -> None:
        """End it on a disk that works; all of it is there."""
        self.recover()
        self.restart()
        self.journal.close()
        self.folder.cleanup()


@dataclass
class Entry:
    """What a plain list knows of a job."""

    transition: Transition = Transition.SCHEDULED
    attempts: int = 0
    done: bool = False
    outcome: HookOutcome | None = None


class Work(RuleBasedStateMachine):
    """Messages and hook jobs beside plain dicts in the order of coming, across restarts."""

    names = st.sampled_from(("a", "b"))
    lives = st.sampled_from(("a", "a#2", "b"))
    sequences = st.integers(1, 4)

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.fixture = StateFixture(Path(self.folder.name))
        self.store = self.fixture.open()
        self.messages: dict[tuple[str, str, int], Entry] = {}
        self.jobs: dict[tuple[str, int, str], Entry] = {}

    @rule(receivers=st.lists(names, unique=True, min_size=1), life=lives, sequence=sequences)
    def tell(self, receivers: list[str], life: str, sequence: int) -> None:
        """Queue messages about a transition, each of which is sent once."""
        at = self.fixture.clock.now()
        facts = {"key": life, "sequence": sequence, "at": at}
        messages = [msgspec.structs.replace(message(), target=target, **facts) for target in receivers]
        self.store.record(_step(), messages)
        for target in receivers:
            self.messages.setdefault((target, life, sequence), Entry())

    @rule(receiver=names, count=st.integers(1, 3))
    def deliver(self, receiver: str, count: int) -> None:
        """Send the oldest messages of a target."""
        waiting = self.store.outbox.waiting(receiver, count)
        expected = [name for name, one in self.messages.items() if name[0] == receiver and not one.done]
        assert [(receiver, one.key, one.sequence) for one in waiting] == expected[:count]
        self.store.outbox.finish(receiver, waiting, self.fixture.clock.now())
        for name in expected[:count]:
            self.messages[name].done = True

    @rule(
        hooks=st.lists(names, unique=True, min_size=1),
        life=lives,
        sequence=sequences,
        transition=st.sampled_from((Transition.SCHEDULED, Transition.UPDATED)),
    )
    def hook(self, hooks: list[str], life: str, sequence: int, transition: Transition) -> None:
        """Queue hooks for a transition; for an update instead of those for updates that have not begun."""
        now, event = self.fixture.clock.now(), view(id=life[0].upper())
        jobs = [Job(hook, life, sequence, transition, now, "vm", event, "VM") for hook in hooks]
        self.store.record(_step(), jobs=jobs)
        known = set(self.jobs)
        if transition is Transition.UPDATED:
            idle = [name for name, one in self.jobs.items() if one == Entry(Transition.UPDATED)]
            for name in idle:
                if name[0] == life and name[2] in hooks:
                    del self.jobs[name]
        for hook in hooks:
            if (life, sequence, hook) not in known:
                self.jobs[life, sequence, hook] = Entry(transition)

    @rule(event=names, outcome=st.sampled_from((None, *HookOutcome)), ends=st.booleans())
    def run(self, event: str, outcome: HookOutcome | None, ends: bool) -> None:
        """Run the next hook of an event."""
        waiting = self.store.hook_jobs.first(event, 1)
        expected = [name for name, one in self.jobs.items() if name[0][0] == event and not one.done]
        assert [(key.life, key.sequence, key.name) for key, _ in waiting] == expected[:1]
        if not waiting:
            return
        key = waiting[0][0]
        one = self.jobs[expected[0]]
        one.attempts += 1
        assert self.store.hook_jobs.begin(key) == one.attempts
        if ends:
            self.store.hook_jobs.finish(key, outcome, self.fixture.clock.now())
            one.done, one.outcome = True, outcome

    @rule(life=lives)
    def end(self, life: str) -> None:
        """End a life: its hooks that have not begun are of no use any more."""
        tracked = TrackedEvent(scheduled(event_id=life), (life,), first_seen=START)
        self.store.record(_step(Occurrence(tracked, Transition.COMPLETED, START)))
        for name in [name for name, one in self.jobs.items() if name[0] == life and not one.attempts]:
            if not self.jobs[name].done:
                del self.jobs[name]

    @rule(life=lives)
    def forget(self, life: str) -> None:
        """Forget a life, with what was done for it."""
        self.store.record(_step(forgotten=(life,)))
        self.jobs = {
            name: one for name, one in self.jobs.items() if name[0] != life or (one.attempts and not one.done)
        }
        self.messages = {name: one for name, one in self.messages.items() if name[1] != life or not one.done}

    @rule(reopen=st.booleans())
    def restart(self, reopen: bool) -> None:
        """Stop and start, or fail to write for a while."""
        if reopen:
            self.store = self.fixture.open()
        else:
            with no_room_for_files():
                self.store.note_last_success(self.fixture.clock.now() + timedelta(seconds=1))
            self.fixture.clock.advance(10)
            self.store.retry()

    @invariant()
    def work_is_right(self) -> None:
        """Check all that can be asked for against the plain dicts."""
        outbox, hooks = self.store.outbox, self.store.hook_jobs
        waiting = Counter(name[0] for name, one in self.messages.items() if not one.done)
        assert outbox.counts() == dict(waiting)
        unfinished = {name: one for name, one in self.jobs.items() if not one.done}
        assert sorted(hooks.events()) == sorted({life[0] for life, *_ in unfinished})
        for life in ("a", "a#2", "b"):
            updates = [n for n, one in unfinished.items() if one.transition is Transition.UPDATED]
            assert hooks.has_open_updates(life) is any(name[0] == life for name in updates)
            found = sorted((sequence, hook) for of, sequence, hook in self.jobs if of == life)
            results = {hook: self.jobs[life, sequence, hook].outcome for sequence, hook in found}
            assert hooks.results(life) == results

    def teardown(self) -> None:
        """End it."""
        self.fixture.close()
        self.folder.cleanup()


def _step(*occurrences: Occurrence, forgotten: tuple[str, ...] = ()) -> Step:
    """Return a step that changes no event."""
    return Step(Known(), occurrences, (), (), forgotten, new_incarnation=True)


TestFailingDisk = FailingDisk.TestCase
TestFailingDisk.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestWork = Work.TestCase
TestWork.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
