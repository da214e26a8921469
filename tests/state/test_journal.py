import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from exporter.health import DegradedReason
from exporter.state.journal import Journal, Table
from tests.state_support import StateFixture, no_room_for_files, on_disk

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
        # Everything that ever existed, which a replaced file may contain.
        self.ever: list[Entries] = [{}]
        self.tampered = False
        self.lives = 0
        self.open()

    def open(self) -> None:
        self.journal = Journal(self.fixture.directory, self.fixture.health, self.fixture.clock)
        self.table = Table(self.journal, "text", str, str)
        with self.disk():
            self.journal.open()
        loaded = dict(self.table.snapshot())
        assert loaded in (self.ever if self.tampered else self.possible)
        self.memory = loaded
        # A file that appears later is the first one that is read, and adds to what is in memory.
        self.is_unread = self.is_failing() and not self.fixture.path.exists()
        if not self.is_failing():
            self.caught_up()

    def disk(self) -> AbstractContextManager[None]:
        return nullcontext() if self.beyond is None else no_room_for_files(self.beyond)

    def is_failing(self) -> bool:
        return self.fixture.problem(DegradedReason.STATE_UNWRITABLE) != ""

    def caught_up(self) -> None:
        found = on_disk(self.fixture.directory, "text")
        assert list(found.items()) == list(self.memory.items())
        self.possible = [dict(self.memory)]
        self.tampered = False
        self.is_unread = False

    @rule(
        changes=st.lists(
            st.tuples(st.sampled_from("abcdef"), st.none() | st.integers(0, 12_000).map(lambda n: "x" * n)),
            min_size=1,
            max_size=4,
        )
    )
    def change(self, changes: list[tuple[str, str | None]]) -> None:
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
        self.beyond = beyond

    @rule()
    def free(self) -> None:
        self.beyond = None

    @rule(seconds=st.sampled_from((1.0, 9.0, 10.0)))
    def wait(self, seconds: float) -> None:
        self.fixture.clock.pass_seconds(seconds)
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
        path, copy = self.fixture.path, Path(self.folder.name, "copy")
        if content == "copy" and (self.is_unread or not copy.exists()):
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


TestFailingDisk = FailingDisk.TestCase
TestFailingDisk.settings = settings(max_examples=60, stateful_step_count=30)


def test_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    """An error of ours in the middle of a transaction leaves no part of it, in memory or on disk."""
    fixture = StateFixture(tmp_path)
    journal = Journal(fixture.directory, fixture.health, fixture.clock)
    table = Table(journal, "number", str, int)
    journal.open()

    def fail() -> None:
        with journal.transaction() as transaction:
            transaction.put(table, "one", 1)
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert table.snapshot() == []
    with journal.transaction() as transaction:
        transaction.put(table, "one", 1)
        transaction.put(table, "two", 2)
        transaction.put(table, "one", 3)
        transaction.delete(table, "two")
        transaction.delete(table, "nine")
        # Other threads read what was there before.
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(table.snapshot).result(30) == []
    assert table.snapshot() == [("one", 3)]
    assert on_disk(fixture.directory, "number") == {"one": 3}
    journal.close()
    with journal.transaction() as transaction:
        transaction.put(table, "late", 4)
    assert not transaction.is_durable
