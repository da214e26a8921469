"""Tests of messages about the watch itself: blind, and recovered, once for each outage."""

from datetime import timedelta
from pathlib import Path

from exporter.errors import ImdsError, PollOutcome
from exporter.health import Health
from exporter.model.messages import Outage, WatchChange
from exporter.notifications.notifier import Notifier
from exporter.notifications.planning import Plan
from tests.builders import body
from tests.clocks import NOW
from tests.notifications.workbench import PlainWriter, Tally, Workbench
from tests.tracing.doubles import Traced
from tests.watch_fixture import WatchFixture

DOWN = ImdsError(PollOutcome.TIMEOUT, "it did not answer")


def told(fixture: WatchFixture) -> list[tuple[WatchChange, int]]:
    """Return the messages about the watch, with their numbers."""
    return [(one.transition, one.sequence) for one in fixture.memory.watch_messages]


def test_an_outage_is_told_once() -> None:
    """Five minutes without a valid document are reported, and so are their end and length."""
    fixture = WatchFixture()
    fixture.poll(body())
    fixture.poll(DOWN, after=299)
    assert told(fixture) == []
    for _ in range(3):
        fixture.poll(after=30)
    (blind,) = fixture.memory.watch_messages
    assert (blind.transition, blind.sequence, blind.error) == (WatchChange.BLIND, 1, "it did not answer")
    assert blind.at - blind.since == timedelta(seconds=329)
    fixture.poll(body())
    fixture.poll()
    recovered = fixture.memory.watch_messages[1]
    assert told(fixture) == [(WatchChange.BLIND, 1), (WatchChange.RECOVERED, 2)]
    assert (recovered.key, recovered.since, recovered.incident) == (blind.key, blind.since, blind.incident)
    assert fixture.memory.outage is None
    fixture.poll(DOWN, after=301)
    assert told(fixture)[2:] == [(WatchChange.BLIND, 1)]
    assert fixture.memory.watch_messages[2].key != blind.key


def test_a_watch_that_never_saw_anything_is_blind_too() -> None:
    """Without a valid document the time counts from the start."""
    fixture = WatchFixture()
    fixture.poll(DOWN, after=299)
    assert told(fixture) == []
    fixture.poll(after=1)
    assert told(fixture) == [(WatchChange.BLIND, 1)]
    assert fixture.memory.watch_messages[0].since == NOW


def test_a_clock_that_is_set_tells_nothing() -> None:
    """How long it lasts is measured by the monotonic clock."""
    fixture = WatchFixture()
    fixture.poll(body())
    fixture.clock.set_wall(fixture.clock.now() + timedelta(hours=1))
    fixture.poll(DOWN)
    assert told(fixture) == []


def test_an_outage_that_outlasts_a_restart() -> None:
    """A process that starts blind knows from the state whether that was reported, and reports the end."""
    outage = Outage(NOW - timedelta(hours=1), "watch/vm_0")
    fixture = WatchFixture(outage=outage)
    fixture.poll(DOWN, after=400)
    assert told(fixture) == []
    fixture.poll(body())
    (recovered,) = fixture.memory.watch_messages
    assert (recovered.transition, recovered.since) == (WatchChange.RECOVERED, outage.since)
    assert (recovered.key, recovered.incident) == (outage.key, "watch/vm_0")


def test_an_outage_is_written_down_with_its_messages(tmp_path: Path) -> None:
    """State and messages survive together, and what else is remembered stays."""
    workbench = Workbench(tmp_path)
    workbench.store.note_last_success(NOW)
    notifier = Notifier(workbench.store.outbox, Tally(), Traced(), Health(workbench.clock), workbench.clock)
    assert notifier.plan.blind_after == float("inf")
    ways = {"oncall": lambda: workbench.sender}
    notifier.configure(Plan((), ways, PlainWriter, watch_after=60.0, watch_targets=("oncall",)))
    assert notifier.plan.blind_after == 60
    outage = Outage(NOW, "watch/vm_0")
    snapshot = WatchFixture().watch.snapshot
    messages = notifier.plan.compose_watch(WatchChange.BLIND, outage, NOW, snapshot)
    workbench.store.record_outage(outage, messages)
    workbench.restart()
    assert workbench.store.outage == outage
    assert workbench.store.load().last_success == NOW
    workbench.work()
    assert workbench.sender.bodies == [f"{outage.key}/1"]
    assert workbench.sender.sent[0].incident == "watch/vm_0"
    workbench.store.record_outage(None, ())
    workbench.restart()
    assert [workbench.store.outage] == [None]
    workbench.store.close()
