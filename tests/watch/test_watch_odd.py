"""Tests of `exporter.watch`: its own name, defects in documents, restarts and reloads."""

import logging
from datetime import timedelta

import pytest

from exporter.config import Instance, Metrics
from exporter.errors import ImdsError, PollOutcome
from exporter.health import Trouble
from exporter.imds import InstanceFacts
from exporter.model.lifecycle import Known
from tests.builders import ABSENT, FREEZE_ID, REBOOT_ID, body, raw_event, scheduled
from tests.clocks import NOW
from tests.house import IDLE, TIMEOUT, House
from tests.lives import Life

OTHERS = {"Resources": ["WestNO_7"]}
UNKNOWN_NAME = "IMDS does not return this VM's name ({}): all events count as its own; set instance.name"


def test_the_name_is_learned_before_the_first_document_is_taken() -> None:
    """What the first document lists for other VMs is never taken for this one's."""
    house = House()
    house.poll(body(raw_event(**OTHERS)))
    assert house.watch.snapshot.instance == "WestNO_0"
    assert house.counted("scheduled") == 0
    assert house.value("pending", event_type="Freeze", event_status="Scheduled", target="other") == 1


def test_the_name_is_asked_for_once() -> None:
    """A name that is known is not asked for again."""
    house = House()
    for _ in range(30):
        house.poll()
    assert house.imds.asked.count("instance") == 1


def test_a_configured_name_is_not_asked_for() -> None:
    """Where the configuration tells the name, IMDS is not asked."""
    house = House(instance=Instance(name="WestNO_7"))
    house.poll(body(raw_event(**OTHERS)))
    assert "instance" not in house.imds.asked
    assert house.counted("scheduled") == 1


def test_the_name_is_not_asked_for_while_documents_fail() -> None:
    """An IMDS that does not answer is not asked twice a poll."""
    house = House()
    house.poll(TIMEOUT)
    assert house.imds.asked == ["document"]


@pytest.mark.parametrize(
    ("facts", "reason"), [(TIMEOUT, str(TIMEOUT)), (InstanceFacts(), "compute.name is empty")]
)
def test_an_unknown_name_is_tried_again_every_10_seconds(
    facts: InstanceFacts | ImdsError, reason: str
) -> None:
    """Until the name is known every event is this VM's, the house is degraded, and IMDS is asked again."""
    house = House()
    house.imds.facts = facts
    house.poll(body(raw_event(**OTHERS)))
    assert house.watch.snapshot.instance is None
    assert house.value("pending", event_type="Freeze", event_status="Scheduled", target="self") == 1
    asked = []
    for second in range(1, 26):
        before = house.imds.asked.count("instance")
        house.poll()
        if house.imds.asked.count("instance") > before:
            asked.append(second)
    assert asked == [10, 20]
    assert house.troubles() == [(Trouble.INSTANCE_UNKNOWN, UNKNOWN_NAME.format(reason))]
    assert house.value("degraded", reason="instance_unknown") == 1
    house.imds.facts = InstanceFacts(name="WestNO_0")
    for _ in range(10):
        house.poll()
    assert house.troubles() == []
    assert house.value("pending", event_type="Freeze", event_status="Scheduled", target="other") == 1


def test_a_slow_name_does_not_take_the_time_from_polling() -> None:
    """Where IMDS hangs when asked for the name, it is asked for during a tenth of the time at most."""
    house = House()
    house.imds.facts, house.imds.facts_take = TIMEOUT, 10.0
    house.poll()
    for _ in range(90):
        house.poll()
    assert house.imds.asked.count("instance") == 2


def test_a_failing_name_does_not_fail_the_poll() -> None:
    """The document counts, whatever becomes of the facts about the VM."""
    house = House()
    house.imds.facts = TIMEOUT
    assert house.poll() is PollOutcome.SUCCESS
    assert house.watch.snapshot.up


def test_a_reload_may_give_a_name_and_take_it_back() -> None:
    """A configured name goes before the one IMDS gave, which stands again once it is removed."""
    house = House()
    house.poll()
    house.configure(instance=Instance(name="Mine"))
    assert house.watch.snapshot.instance == "Mine"
    house.configure()
    assert house.watch.snapshot.instance == "WestNO_0"


def test_a_reload_that_names_the_vm_ends_the_trouble() -> None:
    """Who follows the advice to set the name is rid of the complaint."""
    house = House()
    house.imds.facts = TIMEOUT
    house.poll()
    house.configure(instance=Instance(name="Mine"))
    assert house.troubles() == []


def test_defects_are_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """What is wrong with an event is one line and one count, however often and wherever it is listed."""
    house = House()
    bad, vague = raw_event(EventType=ABSENT), raw_event(EventId=REBOOT_ID, NotBefore="soon")
    house.poll(body(bad, vague))
    house.poll()
    house.poll(body(vague, raw_event(EventId="new"), bad, incarnation=2))
    told = [record for record in caplog.records if record.getMessage() == "event not understood"]
    problems = [
        f"event {FREEZE_ID}: Object missing required field `EventType`",
        f"event {REBOOT_ID}: NotBefore: 'soon' is not an RFC 1123 or ISO 8601 time",
    ]
    assert [record.__dict__["problem"] for record in told] == problems
    assert [(record.levelname, record.__dict__["lost"]) for record in told] == [
        ("WARNING", True),
        ("WARNING", False),
    ]
    assert house.value("invalid_events_total") == 2
    assert house.value("degraded", reason="invalid_event") == 1


def test_the_trouble_with_defects_tells_how_many_and_ends_with_them() -> None:
    """The house is degraded while the newest document has defects, and not longer."""
    house = House()
    house.poll(body(None, 7, raw_event()))
    problem = "event number 0: Expected `object`, got `null` (and 1 more)"
    assert house.troubles() == [(Trouble.INVALID_EVENT, problem)]
    assert [tracked.event for tracked in house.watch.snapshot.current] == [scheduled()]
    house.poll(body(raw_event(), incarnation=2))
    assert house.troubles() == []
    assert house.value("invalid_events_total") == 2


def remembered() -> Known:
    """Return what an earlier process knew: one event current, one gone."""
    life = Life()
    life.feed(scheduled(event_id=REBOOT_ID, event_type="Reboot"))
    life.feed(scheduled())
    return life.known


def test_after_a_restart_remembered_events_show_before_the_first_answer() -> None:
    """What was known is shown at once, with `up` 0, and keeps the time at which it was first seen."""
    house = House(remembered())
    labels = {"event_id": FREEZE_ID, "event_type": "Freeze"}
    first_seen = (NOW + timedelta(seconds=2)).timestamp()
    for _ in range(2):
        seen = house.watch.snapshot
        assert (seen.up, seen.ready, seen.incarnation) == (False, False, 2)
        assert [tracked.event for tracked in seen.past] == [
            scheduled(event_id=REBOOT_ID, event_type="Reboot")
        ]
        assert house.value("up") == 0
        assert house.value("event_first_seen_timestamp_seconds", **labels) == first_seen
        house.poll(TIMEOUT)


def test_after_a_restart_nothing_is_reported_twice(caplog: pytest.LogCaptureFixture) -> None:
    """A document that says what was known already is not news to the new process."""
    caplog.set_level(logging.INFO, "exporter")
    house = House(remembered())
    house.poll(body(raw_event(), incarnation=2))
    assert [record.getMessage() for record in caplog.records] == ["IMDS answers"]
    assert house.counted("scheduled") == 0
    assert [step.writes for step in house.memory.steps] == [False]


def test_what_ended_while_the_exporter_was_down_is_told() -> None:
    """The first document after a restart tells what became of the events, and has no measure of impact."""
    life = Life()
    life.feed(scheduled(), scheduled(event_id=REBOOT_ID, event_type="Reboot", event_status="Started"))
    house = House(life.known)
    house.poll(body(incarnation=2))
    assert house.counted("cancelled") == 1
    assert house.counted("completed", "Reboot") == 1
    assert house.value("impact_seconds_count", event_type="Reboot") == 0


def test_the_snapshot_is_newest_first() -> None:
    """What came last, and what went last, stands first."""
    house = House()
    a, b, c = (raw_event(EventId=name) for name in "abc")
    for number, listed in enumerate(([a, b, c], [a, b], [a], [a])):
        house.poll(body(*listed, incarnation=number))
    house.poll(body(a, raw_event(EventId="d"), incarnation=9))
    seen = house.watch.snapshot
    assert [tracked.key for tracked in seen.current] == ["d", "a"]
    assert [tracked.key for tracked in seen.past] == ["b", "c"]


def test_a_reload_changes_which_events_have_series() -> None:
    """`metrics.events` takes effect with the next scrape."""
    house = House()
    house.poll(body(raw_event(**OTHERS)))
    labels = {"event_id": FREEZE_ID, "event_type": "Freeze"}
    assert house.value("event_resources", **labels) is None
    house.configure(metrics=Metrics(events="all", resources=True))
    assert house.value("event_resources", **labels) == 1
    assert house.value("event_resource_info", resource="WestNO_7", **labels) == 1


def test_a_reset_of_the_incarnation_is_no_news() -> None:
    """An endpoint that starts counting anew changes the number alone."""
    house = House()
    house.poll(body(raw_event(), incarnation=7))
    house.poll(body(raw_event(), incarnation=1))
    assert house.value("document_incarnation") == 1
    assert house.counted("scheduled") == 1
    house.poll(IDLE)
    assert house.counted("vanished") == 1
