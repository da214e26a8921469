"""Tests of what the page shows of messages and hooks: their state, and when they ended."""

from pathlib import Path

from exporter.model.jobs import HookOutcome, Job
from exporter.model.lifecycle import Known, Transition
from exporter.model.messages import Message, Outcome
from exporter.model.views import WorkView, event_view
from tests.state_support import StateFixture, nth_step


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
