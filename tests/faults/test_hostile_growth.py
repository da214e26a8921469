"""Memory and the rows of the state are bounded, however much Azure sends."""

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from exporter.config import Route
from exporter.health import Health
from exporter.model.advance import MOST_TRANSITIONS
from exporter.model.events import SCHEDULED, STARTED, ScheduledEvent
from exporter.model.jobs import TraceJobs
from exporter.model.lifecycle import Life, Transition, TransitionRecord
from exporter.model.listing import MOST_IDS
from exporter.model.messages import Message
from exporter.model.past import MOST_PAST_BYTES, surplus_of
from exporter.notifications.planning import Plan
from exporter.state.store import Store
from tests.builders import scheduled
from tests.clocks import NOW, HandClock
from tests.lives import Story
from tests.notifications.golden_cases import VM
from tests.otlp.test_export import SPAN
from tests.otlp.test_logs import RECORD


def test_history_has_an_end() -> None:
    """Ids that are new at every poll displace the oldest, which are deleted from the state, too."""
    story, forgotten = Story(), 0
    for turn in range(5):
        found = [scheduled(event_id=f"{turn}-{n}") for n in range(5000)]
        forgotten += len(story.feed(*found).forgotten)
    assert sum(life.event.size for life in story.past) <= MOST_PAST_BYTES
    assert list(story.known.past) == [f"3-{n}" for n in range(5000)][-len(story.past) :]
    assert forgotten + len(story.past) == 20_000
    assert len(story.past) > 3000


@pytest.mark.parametrize(
    ("grown", "kept"),
    [
        ({"transitions": (TransitionRecord(Transition.UPDATED, NOW),) * MOST_TRANSITIONS}, 34),
        ({"ids": ("x" * 256,) * MOST_IDS}, 80),
    ],
)
def test_history_has_an_end_in_bytes(grown: dict[str, Any], kept: int) -> None:
    """Ids and transitions count, however small the event is."""
    life = replace(Life(scheduled(), ("x",), NOW), **grown)
    assert len(surplus_of({str(number): life for number in range(100)}, NOW)) == 100 - kept


def test_the_state_is_bounded_in_bytes(tmp_path: Path) -> None:
    """New ids with long texts in every poll, and no target that answers: the state stays below 16 MiB."""
    clock = HandClock()
    store = Store.open(tmp_path, health=Health(clock), clock=clock)
    store.spans.lanes = store.log_records.lanes = ("otlp",)
    plan, story = Plan([Route(("a", "b"))]), Story()
    dropped: Counter[str] = Counter()
    for number in range(1, 30):
        found = [scheduled(event_id=f"{number}-{n}", description="\u20ac" * 2000) for n in range(120)]
        step = story.feed(*found)
        messages = plan.compose(step.occurrences, instance="WestNO_0", now=NOW)
        spans = [replace(SPAN, span_id=f"{number:08x}{n:08x}", name="\u20ac" * 2000) for n in range(120)]
        records = [replace(RECORD, uid=f"{number}-{n}", body="\u20ac" * 2000) for n in range(120)]
        store.record(step, messages, traced=TraceJobs(spans, records))
        dropped.update(store.outbox.take_dropped())
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 16 * 2**20
    assert min(dropped["a"], dropped["b"]) > 1000
    assert dropped.total() + sum(store.outbox.counts().values()) == 2 * (29 + 28) * 120
    for queue in (store.spans, store.log_records):
        assert queue.take_displaced("otlp") + len(queue.waiting("otlp")) == 29 * 120
    store.close()
    again = Store.open(tmp_path, health=Health(clock), clock=clock)
    assert again.load().current == story.known.current
    again.close()


def test_a_storm_for_three_targets_has_room(tmp_path: Path) -> None:
    """No message about a thousand new events is dropped, with all that is known about the VM."""
    clock = HandClock()
    store = Store.open(tmp_path, health=Health(clock), clock=clock)
    found = [scheduled(event_id=str(UUID(int=number))) for number in range(1000)]
    step = Story().feed(*found)
    plan = Plan([Route(("mail", "chat", "pager"))])
    messages = plan.compose(step.occurrences, instance="WestNO_0", now=NOW, vm=VM)
    store.record(step, messages)
    assert store.outbox.take_dropped() == {}
    assert store.outbox.counts() == {"mail": 1000, "chat": 1000, "pager": 1000}
    store.close()


def test_changes_of_one_event_have_an_end() -> None:
    """Content that differs every minute is reported a thousand times; start and end are still reported."""
    story, told = Story(), list[Message]()

    def show(*events: ScheduledEvent) -> None:
        step = story.feed(*events, after=timedelta(minutes=1))
        told.extend(Plan([Route(("a",))]).compose(step.occurrences, instance="WestNO_0", now=story.now))

    for number in range(MOST_TRANSITIONS + 200):
        show(scheduled(duration_seconds=number))
    (life,) = story.current
    assert len(life.transitions) == len(told) == MOST_TRANSITIONS
    assert life.event.duration_seconds == MOST_TRANSITIONS + 199
    show(scheduled(event_status=STARTED))
    show()
    assert [message.transition.value for message in told[-2:]] == ["started", "completed"]
    assert len({message.sequence for message in told}) == len(told)


def test_the_ids_of_one_event_have_an_end() -> None:
    """An event that is renewed, and reset, at every poll counts as another one after a while."""
    story = Story()
    for number in range(4 * MOST_IDS):
        status = STARTED if number % 2 else SCHEDULED
        story.feed(scheduled(event_id=str((number + 1) // 2), event_status=status))
    assert max(len(life.ids) for life in (*story.current, *story.past)) == MOST_IDS
