"""Tests of `exporter.watch`: its own name, defects in documents, restarts and reloads."""

import logging
from datetime import timedelta

import pytest

from exporter.config import Instance, Metrics
from exporter.errors import ImdsError, PollOutcome
from exporter.health import DegradedReason
from exporter.model.lifecycle import Known
from exporter.model.vm import VirtualMachine
from tests.builders import ABSENT, FREEZE_ID, REBOOT_ID, body, raw_event, scheduled
from tests.clocks import NOW
from tests.lives import Life
from tests.watch_fixture import IDLE, TIMEOUT, WatchFixture

OTHERS = {"Resources": ["WestNO_7"]}
UNKNOWN_NAME = "IMDS does not return this VM's name ({}): all events count as its own; set instance.name"


def test_the_name_is_learned_before_the_first_document_is_taken() -> None:
    """Events of other VMs in the first document are never treated as this one's."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event(**OTHERS)))
    assert fixture.watch.snapshot.instance == "WestNO_0"
    assert fixture.counted("scheduled") == 0
    assert fixture.value("pending", event_type="Freeze", event_status="Scheduled", target="other") == 1


def test_the_name_is_asked_for_once() -> None:
    """A name that is known is not asked for again."""
    fixture = WatchFixture()
    for _ in range(30):
        fixture.poll()
    assert fixture.imds.asked.count("instance") == 1


def test_a_configured_name_is_used() -> None:
    """A configured name goes before the one that IMDS has; the other facts are those of IMDS."""
    fixture = WatchFixture(instance=Instance(name="WestNO_7"))
    fixture.poll(body(raw_event(**OTHERS)))
    assert fixture.counted("scheduled") == 1
    assert fixture.watch.snapshot.instance == "WestNO_7"
    assert fixture.watch.snapshot.vm == VirtualMachine(name="WestNO_0")


def test_facts_are_asked_for_until_they_are_known() -> None:
    """With a configured name, IMDS is asked for the other facts every five minutes, without a problem."""
    fixture = WatchFixture(instance=Instance(name="WestNO_7"))
    fixture.imds.facts = TIMEOUT
    for _ in range(301):
        fixture.poll()
    assert fixture.imds.asked.count("instance") == 2
    assert fixture.problems() == []
    fixture.imds.facts = VirtualMachine(size="Standard_D2s_v5")
    fixture.poll(after=300)
    fixture.poll(after=300)
    assert fixture.imds.asked.count("instance") == 3
    assert fixture.watch.snapshot.vm == VirtualMachine(size="Standard_D2s_v5")


def test_the_name_is_not_asked_for_while_documents_fail() -> None:
    """An IMDS that does not answer is not asked twice a poll."""
    fixture = WatchFixture()
    fixture.poll(TIMEOUT)
    assert fixture.imds.asked == ["document"]


@pytest.mark.parametrize(
    ("facts", "reason"), [(TIMEOUT, str(TIMEOUT)), (VirtualMachine(), "compute.name is empty")]
)
def test_an_unknown_name_is_tried_again_every_10_seconds(
    facts: VirtualMachine | ImdsError, reason: str
) -> None:
    """Until the name is known every event is this VM's, the fixture is degraded, and IMDS is asked again."""
    fixture = WatchFixture()
    fixture.imds.facts = facts
    fixture.poll(body(raw_event(**OTHERS)))
    assert fixture.watch.snapshot.instance is None
    assert fixture.value("pending", event_type="Freeze", event_status="Scheduled", target="self") == 1
    asked = []
    for second in range(1, 26):
        before = fixture.imds.asked.count("instance")
        fixture.poll()
        if fixture.imds.asked.count("instance") > before:
            asked.append(second)
    assert asked == [10, 20]
    assert fixture.problems() == [(DegradedReason.INSTANCE_UNKNOWN, UNKNOWN_NAME.format(reason))]
    assert fixture.value("degraded", reason="instance_unknown") == 1
    fixture.imds.facts = VirtualMachine(name="WestNO_0")
    for _ in range(10):
        fixture.poll()
    assert fixture.problems() == []
    assert fixture.value("pending", event_type="Freeze", event_status="Scheduled", target="other") == 1


def test_a_slow_name_does_not_take_the_time_from_polling() -> None:
    """Where IMDS hangs when asked for the name, it is asked for during a tenth of the time at most."""
    fixture = WatchFixture()
    fixture.imds.facts, fixture.imds.facts_take = TIMEOUT, 10.0
    fixture.poll()
    for _ in range(90):
        fixture.poll()
    assert fixture.imds.asked.count("instance") == 2


def test_a_failing_name_does_not_fail_the_poll() -> None:
    """The document counts, whatever becomes of the facts about the VM."""
    fixture = WatchFixture()
    fixture.imds.facts = TIMEOUT
    assert fixture.poll() is PollOutcome.SUCCESS
    assert fixture.watch.snapshot.up


def test_a_reload_may_give_a_name_and_take_it_back() -> None:
    """A configured name goes before the one IMDS gave, which stands again once it is removed."""
    fixture = WatchFixture()
    fixture.poll()
    fixture.configure(instance=Instance(name="Mine"))
    assert fixture.watch.snapshot.instance == "Mine"
    fixture.configure()
    assert fixture.watch.snapshot.instance == "WestNO_0"


def test_a_reload_that_names_the_vm_ends_the_trouble() -> None:
    """Who follows the advice to set the name is rid of the complaint."""
    fixture = WatchFixture()
    fixture.imds.facts = TIMEOUT
    fixture.poll()
    fixture.configure(instance=Instance(name="Mine"))
    assert fixture.problems() == []


def test_defects_are_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """What is wrong with an event is one line and one count, however often and wherever it is listed."""
    fixture = WatchFixture()
    bad, vague = raw_event(EventType=ABSENT), raw_event(EventId=REBOOT_ID, NotBefore="soon")
    fixture.poll(body(bad, vague))
    fixture.poll()
    fixture.poll(body(vague, raw_event(EventId="new"), bad, incarnation=2))
    told = [record for record in caplog.records if record.getMessage() == "event could not be decoded"]
    problems = [
        f"event {FREEZE_ID}: Object missing required field `EventType`",
        f"event {REBOOT_ID}: NotBefore: 'soon' is not an RFC 1123 or ISO 8601 time",
    ]
    assert [record.__dict__["problem"] for record in told] == problems
    assert [(record.levelname, record.__dict__["lost"]) for record in told] == [
        ("WARNING", True),
        ("WARNING", False),
    ]
    assert fixture.value("invalid_events_total") == 2
    assert fixture.value("degraded", reason="invalid_event") == 1


def test_the_trouble_with_defects_tells_how_many_and_ends_with_them() -> None:
    """The fixture is degraded while the newest document has defects, and not longer."""
    fixture = WatchFixture()
    fixture.poll(body(None, 7, raw_event()))
    problem = "event number 0: Expected `object`, got `null` (and 1 more)"
    assert fixture.problems() == [(DegradedReason.INVALID_EVENT, problem)]
    assert [tracked.event for tracked in fixture.watch.snapshot.current] == [scheduled()]
    fixture.poll(body(raw_event(), incarnation=2))
    assert fixture.problems() == []
    assert fixture.value("invalid_events_total") == 2


def remembered() -> Known:
    """Return what an earlier process knew: one event current, one gone."""
    life = Life()
    life.feed(scheduled(event_id=REBOOT_ID, event_type="Reboot"))
    life.feed(scheduled())
    return life.known


def test_after_a_restart_remembered_events_show_before_the_first_answer() -> None:
    """What was known is shown at once, with `up` 0, and keeps the time at which it was first seen."""
    fixture = WatchFixture(remembered())
    labels = {"event_id": FREEZE_ID, "event_type": "Freeze"}
    first_seen = (NOW + timedelta(seconds=2)).timestamp()
    for _ in range(2):
        seen = fixture.watch.snapshot
        assert (seen.up, seen.ready, seen.incarnation) == (False, False, 2)
        assert [tracked.event for tracked in seen.past] == [
            scheduled(event_id=REBOOT_ID, event_type="Reboot")
        ]
        assert fixture.value("up") == 0
        assert fixture.value("event_first_seen_timestamp_seconds", **labels) == first_seen
        fixture.poll(TIMEOUT)


def test_after_a_restart_nothing_is_reported_twice(caplog: pytest.LogCaptureFixture) -> None:
    """A document without changes causes no transitions in the new process."""
    caplog.set_level(logging.INFO, "exporter")
    fixture = WatchFixture(remembered())
    fixture.poll(body(raw_event(), incarnation=2))
    assert [record.getMessage() for record in caplog.records] == ["IMDS answers"]
    assert fixture.counted("scheduled") == 0
    assert [step.writes for step in fixture.memory.steps] == [False]


def test_what_ended_while_the_exporter_was_down_is_told() -> None:
    """The first document after a restart ends the events, without a measure of impact."""
    life = Life()
    life.feed(scheduled(), scheduled(event_id=REBOOT_ID, event_type="Reboot", event_status="Started"))
    fixture = WatchFixture(life.known)
    fixture.poll(body(incarnation=2))
    assert fixture.counted("cancelled") == 1
    assert fixture.counted("completed", "Reboot") == 1
    assert fixture.value("impact_seconds_count", event_type="Reboot") == 0


def test_the_snapshot_is_newest_first() -> None:
    """What came last, and what went last, stands first."""
    fixture = WatchFixture()
    a, b, c = (raw_event(EventId=name) for name in "abc")
    for number, listed in enumerate(([a, b, c], [a, b], [a], [a])):
        fixture.poll(body(*listed, incarnation=number))
    fixture.poll(body(a, raw_event(EventId="d"), incarnation=9))
    seen = fixture.watch.snapshot
    assert [tracked.key for tracked in seen.current] == ["d", "a"]
    assert [tracked.key for tracked in seen.past] == ["b", "c"]


def test_a_reload_changes_which_events_have_series() -> None:
    """`metrics.events` takes effect with the next scrape."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event(**OTHERS)))
    labels = {"event_id": FREEZE_ID, "event_type": "Freeze"}
    assert fixture.value("event_resources", **labels) is None
    fixture.configure(metrics=Metrics(events="all", resources=True))
    assert fixture.value("event_resources", **labels) == 1
    assert fixture.value("event_resource_info", resource="WestNO_7", **labels) == 1


def test_a_reset_of_the_incarnation_is_no_news() -> None:
    """An endpoint that starts counting anew changes the number alone."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event(), incarnation=7))
    fixture.poll(body(raw_event(), incarnation=1))
    assert fixture.value("document_incarnation") == 1
    assert fixture.counted("scheduled") == 1
    fixture.poll(IDLE)
    assert fixture.counted("vanished") == 1
