"""Tests of `exporter.state.jobs`: messages, hooks and approvals, in order and across restarts."""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from exporter.model.jobs import HookOutcome, Job
from exporter.model.lifecycle import Known, Occurrence, Step, TrackedEvent, Transition
from exporter.model.messages import Message, Outcome
from exporter.model.views import WorkView, event_view
from tests.builders import scheduled
from tests.notifications.messages import message, view
from tests.state_support import START, StateFixture, no_room_for_files, nth_step


@dataclass
class Entry:
    """A job in the model, which is a plain list."""

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
        """End a life: its hooks that have not started are dropped."""
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
            self.fixture.clock.pass_seconds(10)
            self.store.retry()

    @invariant()
    def work_is_right(self) -> None:
        """Check all that can be asked for against the plain dicts."""
        outbox, hooks = self.store.outbox, self.store.hook_jobs
        waiting = Counter(name[0] for name, one in self.messages.items() if not one.done)
        assert outbox.counts() == dict(waiting)
        unfinished = {name: one for name, one in self.jobs.items() if not one.done}
        assert sorted(hooks.counts()) == sorted({life[0] for life, *_ in unfinished})
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


TestWork = Work.TestCase
TestWork.settings = settings(max_examples=40, stateful_step_count=40)


def test_messages_and_hooks_of_a_life(tmp_path: Path) -> None:
    """Each has the transition that caused it, its state and its end, also after a restart."""
    fixture = StateFixture(tmp_path)
    step = nth_step(Known(), 1)
    mine, other = step.occurrences[0].tracked, step.occurrences[1].tracked
    now = fixture.clock.now()
    messages = [
        Message(target, life.key, 1, Transition.SCHEDULED, now, "vm_0", event_view(life))
        for life in (mine, other)
        for target in ("chat", "mail", "oncall", "silent")
    ]
    jobs = [
        Job(hook, mine.key, 1, Transition.SCHEDULED, now, "vm_0", event_view(mine), "VirtualMachine")
        for hook in ("drain", "tell")
    ]
    store = fixture.open()
    store.record(step, messages, jobs)

    def finish(target: str, outcome: Outcome | None) -> None:
        waiting = [one for one in store.outbox.waiting(target, 10) if one.key == mine.key]
        store.outbox.finish(target, waiting, now, outcome=outcome)

    finish("mail", Outcome.REFUSED)
    finish("oncall", Outcome.DELIVERED)
    finish("silent", None)
    ((drain, _),) = store.hook_jobs.first(mine.ids[0].lower(), 1)
    store.hook_jobs.begin(drain)
    scheduled = Transition.SCHEDULED
    messages_found = [
        WorkView("message", "chat", scheduled, "pending", None),
        WorkView("message", "mail", scheduled, "refused", now),
        WorkView("message", "oncall", scheduled, "delivered", now),
        WorkView("message", "silent", scheduled, "", now),
    ]
    assert store.work([mine.key]) == {
        mine.key: [
            *messages_found,
            WorkView("hook", "drain", scheduled, "running", None),
            WorkView("hook", "tell", scheduled, "pending", None),
        ]
    }
    store.hook_jobs.finish(drain, HookOutcome.TIMED_OUT, now)
    found = fixture.open().work([mine.key, "unknown"])
    assert found["unknown"] == []
    assert found[mine.key][:5] == [*messages_found, WorkView("hook", "drain", scheduled, "timed_out", now)]
    fixture.close()


def test_a_try_counts_from_the_newest_request(tmp_path: Path) -> None:
    """An approval that Azure takes only after an hour of errors is dated from its newest request."""
    fixture = StateFixture(tmp_path)
    approvals = fixture.open().approvals
    assert approvals.decide("a", "A", "rule", START)
    later = START + timedelta(minutes=90)
    assert approvals.decide("a", "A", "rule", later)
    approvals.note_sent("a", later)
    assert [approval.decided for approval in approvals.known()] == [later]
    fixture.close()


def test_what_was_decided_survives_and_counts(tmp_path: Path) -> None:
    """After a restart each event is known once, whether it was sent or not."""
    fixture = StateFixture(tmp_path)
    approvals = fixture.open().approvals
    for key in ("a", "b", "c"):
        assert approvals.decide(key, key.upper(), "rule", START)
    approvals.note_sent("b", START + timedelta(seconds=1))
    approvals = fixture.open().approvals
    assert [approval.key for approval in approvals.known()] == ["a", "b", "c"]
    assert [approval.key for approval in approvals.known() if approval.sent is not None] == ["b"]
    found = approvals.find("a")
    assert found is not None
    assert (found.event_id, found.rule, found.decided, found.sent) == ("A", "rule", START, None)
    assert approvals.find("z") is None
    fixture.close()


def test_a_disk_that_fails_is_told(tmp_path: Path) -> None:
    """What the disk does not have would be forgotten by a crash, so it is no base for an approval."""
    fixture = StateFixture(tmp_path)
    store = fixture.open()
    fixture.path.unlink()
    (tmp_path / "state.db").mkdir()
    assert not store.approvals.decide("a", "A", "rule", START)
    fixture.close()
