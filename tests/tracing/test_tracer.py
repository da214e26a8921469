"""Tests of `exporter.tracing.tracer`: all of tracing, against real receivers."""

from collections.abc import Iterator

import msgspec
import pytest

from exporter.config import Config, Instance, Route, Tracing
from exporter.health import Health
from exporter.imds import InstanceFacts
from exporter.model.messages import Outcome
from exporter.notifications.routing import compose
from exporter.tracing import Tracer
from exporter.tracing.spans import event_spans
from tests.builders import started
from tests.clocks import NOW, HandClock
from tests.end_to_end.program import eventually
from tests.lives import Life
from tests.notifications.receivers import Receiver, http_receiver
from tests.tracing.doubles import SpanTally
from tests.tracing.receiver import spans

ON = Config(tracing=Tracing(enabled=True))
OFF = Config(tracing=Tracing(enabled=False))


class Setting:
    """A tracer with everything around it, and a VM's life."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.clock = HandClock()
        self.health = Health(self.clock)
        self.tally = SpanTally()
        self.life = Life()
        self.tracer = Tracer(
            self.tally, self.health, self.clock, ask=lambda: InstanceFacts(vm_id="1"), environ=environ
        )

    def live(self, instance: str | None = "vm_0") -> None:
        """Let an event begin and end, which makes two spans."""
        for step in (self.life.feed(started()), self.life.feed()):
            for occurrence in step.occurrences:
                self.tracer.happened(occurrence, instance)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Run a receiver that the standard variable names."""
    with http_receiver() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{found.authority}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
        yield found


@pytest.fixture
def setting(receiver: Receiver) -> Iterator[Setting]:
    """Set up, and end all threads."""
    found = Setting({"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{receiver.authority}"})
    yield found
    receiver.released.set()
    assert found.tracer.stop(10)


@pytest.mark.parametrize("mood", [503, "hang"])
def test_switched_off_while_a_receiver_fails(setting: Setting, receiver: Receiver, mood: int | str) -> None:
    """Nothing of the trouble stays, and the spans are counted once."""
    receiver.mood = mood
    setting.tracer.configure(ON)
    setting.live()
    if mood == 503:
        eventually(setting.health.problems)
    setting.tracer.configure(OFF)
    receiver.released.set()
    assert setting.health.problems() == ()
    eventually(lambda: setting.tally.dropped == 2)
    assert setting.tally.exported == 0


def test_a_name_that_is_no_unicode(setting: Setting, receiver: Receiver) -> None:
    """What bytes on a command line make costs neither the watch nor a span."""
    name = b"vm\xff0".decode(errors="surrogateescape")
    setting.tracer.configure(msgspec.structs.replace(ON, instance=Instance(name=name)))
    setting.live(name)
    eventually(lambda: setting.tally.exported == 2)
    assert {span.resource["host.name"] for span in spans(receiver)} == {"vm\\udcff0"}


@pytest.mark.parametrize("known_then", [None, "WestNO_1"])
def test_a_message_from_before_the_name_was_configured(
    setting: Setting, receiver: Receiver, known_then: str | None
) -> None:
    """It is told of as this VM's, and so is all that follows: span ids are those of any later start."""
    setting.tracer.configure(msgspec.structs.replace(ON, instance=Instance(name="vm_0")))
    step = setting.life.feed(started())
    (message,) = compose([Route(("oncall",))], step.occurrences, instance=known_then, now=NOW)
    setting.tracer.notified(message, NOW, Outcome.DELIVERED)
    end = setting.life.feed()
    setting.tracer.happened(end.occurrences[0], "vm_0")
    eventually(lambda: setting.tally.exported == 3)
    *_, root = event_spans(end.occurrences[0], "vm_0")
    assert [span.parent_id or span.span_id for span in spans(receiver)] == [root.span_id] * 3


def test_a_message_from_before_the_name_was_known(setting: Setting, receiver: Receiver) -> None:
    """It has no say in how this VM is named from then on."""
    setting.tracer.configure(ON)
    step = setting.life.feed(started())
    (message,) = compose([Route(("oncall",))], step.occurrences, instance=None, now=NOW)
    setting.tracer.notified(message, NOW, Outcome.DELIVERED)
    end = setting.life.feed()
    setting.tracer.happened(end.occurrences[0], "vm_0")
    eventually(lambda: setting.tally.exported == 3)
    *_, root = event_spans(end.occurrences[0], "vm_0")
    assert root.span_id in {span.span_id for span in spans(receiver)}
