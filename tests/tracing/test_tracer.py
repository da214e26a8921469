"""Tests of `exporter.tracing.tracer`: all of tracing, against real receivers."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from exporter.config import Config, Instance, Route, Tracing
from exporter.health import Health
from exporter.model.jobs import LifeEvent, SpanEvent, TraceJobs
from exporter.model.lifecycle import Step
from exporter.model.messages import Outcome
from exporter.model.vm import VirtualMachine
from exporter.notifications.planning import Plan
from exporter.state import Store
from exporter.state.queues import CAPACITY
from exporter.tracing import Tracer
from exporter.tracing.spans import event_spans, notification_span
from tests.builders import FREEZE_ID, scheduled, started
from tests.clocks import NOW, HandClock
from tests.end_to_end.program import eventually
from tests.lives import Life
from tests.notifications.receivers import Receiver
from tests.state_support import on_disk
from tests.tracing.doubles import SpanTally
from tests.tracing.receiver import spans

ON = Config(tracing=Tracing(enabled=True))
OFF = Config(tracing=Tracing(enabled=False))


class Setting:
    """A tracer with everything around it, and a VM's life."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.clock = HandClock()
        self.health = Health(self.clock)
        self.tally = SpanTally()
        self.life = Life()
        self.environ = environ
        self.open(folder)

    def open(self, folder: Path) -> None:
        """Start as a new process does."""
        self.store = Store.open(folder, health=self.health, clock=self.clock)
        self.tracer = Tracer(
            self.store.spans,
            self.tally,
            self.health,
            self.clock,
            vm=lambda: VirtualMachine(vm_id="1"),
            environ=self.environ,
        )

    def live(self, instance: str | None = "vm_0") -> None:
        """Begin and end an event, which makes two spans."""
        for step in (self.life.feed(started()), self.life.feed()):
            self.record(step, instance)

    def record(self, step: Step, instance: str | None = "vm_0") -> None:
        """Write down what a step did, as the watch does."""
        self.store.record(step, traced=self.tracer.compose(step.occurrences, instance))
        self.tracer.wake()


@pytest.fixture
def setting(receiver: Receiver, tmp_path: Path) -> Iterator[Setting]:
    """Set up, and end all threads."""
    found = Setting(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{receiver.authority}"})
    yield found
    receiver.released.set()
    assert found.tracer.stop(10)
    found.store.close()


@pytest.mark.parametrize("mood", [503, "hang"])
def test_switched_off_while_a_receiver_fails(
    setting: Setting, receiver: Receiver, tmp_path: Path, mood: int | str
) -> None:
    """Nothing of the trouble stays, and the spans are counted once."""
    receiver.mood = mood
    setting.tracer.configure(ON)
    setting.live()
    if mood == 503:
        eventually(setting.health.problems)
    setting.tracer.configure(OFF)
    receiver.released.set()
    assert setting.health.problems() == ()
    assert (setting.tally.exported, setting.tally.dropped) == (0, 2)
    assert on_disk(tmp_path, "span") == {}


def test_what_is_left_while_traces_are_off(setting: Setting, receiver: Receiver, tmp_path: Path) -> None:
    """Spans of a process before this one are dropped where this one does not trace, and nothing is stored."""
    setting.store.spans.lanes = ("otlp", "console")
    step = setting.life.feed(started())
    (message,) = Plan([Route(("oncall",))]).compose(step.occurrences, instance="vm_0", now=NOW)
    setting.store.spans.stage([notification_span(message, "vm_0", NOW, Outcome.DELIVERED)])
    setting.tracer.configure(OFF)
    setting.record(step)
    setting.store.spans.stage(setting.tracer.notified(message, NOW, Outcome.DELIVERED))
    assert on_disk(tmp_path, "span") == {}
    assert setting.tally.dropped == 2
    assert receiver.requests == []


def test_a_name_that_is_no_unicode(setting: Setting, receiver: Receiver) -> None:
    """What bytes on a command line make costs neither the watch nor a span."""
    name = b"vm\xff0".decode(errors="surrogateescape")
    setting.tracer.configure(msgspec.structs.replace(ON, instance=Instance(name=name)))
    setting.live(name)
    eventually(lambda: setting.tally.exported == 2)
    assert {span.resource["host.name"] for span in spans(receiver)} == {"vm\\udcff0"}


def test_changes_outlive_the_process(tmp_path: Path, receiver: Receiver, setting: Setting) -> None:
    """What an update changed is in the root span, also after a restart; then nothing of it is kept."""
    setting.tracer.configure(ON)
    for changed in (scheduled(), scheduled(duration_seconds=9)):
        setting.record(setting.life.feed(changed))
    assert list(on_disk(tmp_path, "span_event")) == [(FREEZE_ID.lower(), 2)]
    assert setting.tracer.stop(10)
    setting.store.close()
    setting.open(tmp_path)
    setting.tracer.configure(ON)
    setting.record(setting.life.feed())
    eventually(lambda: setting.tally.exported == 2)
    (root,) = (span for span in spans(receiver) if not span.parent_id)
    ((name, _, attributes),) = root.events
    assert (name, attributes) == (
        "updated",
        {
            "azure.scheduled_event.duration_seconds.old": 5,
            "azure.scheduled_event.duration_seconds.new": 9,
        },
    )
    assert on_disk(tmp_path, "span_event") == {}


def test_changes_are_bounded(setting: Setting, tmp_path: Path) -> None:
    """So many are kept, the newest; none once traces are off."""
    setting.tracer.configure(ON)
    many = [LifeEvent("a", number, SpanEvent("updated", NOW)) for number in range(CAPACITY + 2)]
    for part in (many[:3], many[3:]):
        setting.store.record(setting.life.feed(scheduled()), traced=TraceJobs(events=part))
        setting.life.feed()
    assert list(setting.store.spans.events.of("a")) == list(range(2, CAPACITY + 2))
    setting.tracer.configure(OFF)
    assert on_disk(tmp_path, "span_event") == {}


@pytest.mark.parametrize("known_then", [None, "WestNO_1"])
def test_a_message_from_before_the_name_was_configured(
    setting: Setting, receiver: Receiver, known_then: str | None
) -> None:
    """It is told of as this VM's, and so is all that follows: span ids are those of any later start."""
    setting.tracer.configure(msgspec.structs.replace(ON, instance=Instance(name="vm_0")))
    step = setting.life.feed(started())
    (message,) = Plan([Route(("oncall",))]).compose(step.occurrences, instance=known_then, now=NOW)
    setting.store.spans.stage(setting.tracer.notified(message, NOW, Outcome.DELIVERED))
    end = setting.life.feed()
    setting.record(end)
    eventually(lambda: setting.tally.exported == 3)
    *_, root = event_spans(end.occurrences[0], "vm_0")
    assert [span.parent_id or span.span_id for span in spans(receiver)] == [root.span_id] * 3


def test_a_message_from_before_the_name_was_known(setting: Setting, receiver: Receiver) -> None:
    """It does not affect this VM's name from then on."""
    setting.tracer.configure(ON)
    step = setting.life.feed(started())
    (message,) = Plan([Route(("oncall",))]).compose(step.occurrences, instance=None, now=NOW)
    setting.store.spans.stage(setting.tracer.notified(message, NOW, Outcome.DELIVERED))
    end = setting.life.feed()
    setting.record(end)
    eventually(lambda: setting.tally.exported == 3)
    *_, root = event_spans(end.occurrences[0], "vm_0")
    assert root.span_id in {span.span_id for span in spans(receiver)}
