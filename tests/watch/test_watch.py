"""Tests of `exporter.watch`: what one poll after another does, without a thread, a disk or a network."""

import logging
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client.exposition import choose_encoder

from exporter import config
from exporter.errors import ImdsError, PollOutcome
from exporter.model.documents import Document, decode_document
from exporter.model.events import trace_id
from exporter.model.lifecycle import Known, Transition
from tests.builders import FREEZE_ID, NOT_BEFORE, REBOOT_ID, body, raw_event, scheduled
from tests.clocks import NOW
from tests.watch_fixture import IDLE, TIMEOUT, WatchFixture

STARTED = {"EventStatus": "Started", "NotBefore": ""}
OTHERS = {"Resources": ["WestNO_7"]}


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Return the log of the program, from INFO on."""
    caplog.set_level(logging.INFO, "exporter")
    return caplog


def facts(record: logging.LogRecord, *names: str) -> dict[str, Any]:
    """Return some fields of a log line."""
    return {name: getattr(record, name) for name in names}


def test_before_the_first_poll() -> None:
    """A watch that has not polled is neither up nor ready, and has no last success."""
    fixture = WatchFixture()
    assert (fixture.watch.snapshot.up, fixture.watch.snapshot.ready) == (False, False)
    assert fixture.value("up") == 0
    assert fixture.value("last_success_timestamp_seconds") is None
    assert fixture.value("document_incarnation") is None


def test_a_good_answer() -> None:
    """A valid document makes the watch up and ready, with its time and incarnation."""
    fixture = WatchFixture()
    fixture.imds.takes = 0.2
    assert fixture.poll(body(raw_event(), incarnation=4)) is PollOutcome.SUCCESS
    seen = fixture.watch.snapshot
    assert (seen.up, seen.ready, seen.incarnation, seen.last_error) == (True, True, 4, "")
    assert seen.last_success == fixture.clock.now()
    assert [tracked.event for tracked in seen.current] == [scheduled()]
    assert fixture.value("up") == 1
    assert fixture.value("last_success_timestamp_seconds") == fixture.clock.now().timestamp()
    assert fixture.value("document_incarnation") == 4
    assert fixture.value("polls_total", outcome="success") == 1
    assert fixture.value("poll_duration_seconds_sum") == pytest.approx(0.2)
    assert fixture.watch.known == Known(
        4, fixture.clock.now(), fixture.memory.steps[0].known.current, fixture.memory.steps[0].known.past
    )


@pytest.mark.parametrize("reason", [reason for reason in PollOutcome if reason is not PollOutcome.SUCCESS])
def test_known_events_stay_while_imds_fails(reason: PollOutcome) -> None:
    """A failed poll makes the watch not up, counts with its reason, and changes nothing else."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event()))
    before = fixture.watch.snapshot
    for _ in range(3):
        assert fixture.poll(ImdsError(reason, "no luck")) is reason
    after = fixture.watch.snapshot
    assert (after.up, after.ready, after.last_error) == (False, True, "no luck")
    assert (after.current, after.last_success, after.incarnation) == (
        before.current,
        before.last_success,
        before.incarnation,
    )
    assert fixture.value("up") == 0
    assert fixture.value("pending", event_type="Freeze", event_status="Scheduled", target="self") == 1
    assert fixture.value("polls_total", outcome=reason.value) == 3
    assert fixture.value("poll_duration_seconds_count") == 4


def test_a_first_poll_that_fails_leaves_the_watch_not_ready() -> None:
    """Readiness comes with a valid document, and not before."""
    fixture = WatchFixture()
    fixture.poll(TIMEOUT)
    assert not fixture.watch.snapshot.ready


def test_an_answer_that_is_no_document() -> None:
    """Garbage is a failed poll with its own outcome."""
    fixture = WatchFixture()
    assert fixture.poll(b"<html>") is PollOutcome.INVALID_DOCUMENT
    assert fixture.watch.snapshot.last_error.startswith("not a document of scheduled events: ")
    assert fixture.value("polls_total", outcome="invalid_document") == 1
    assert fixture.memory.steps == []


def test_failure_and_recovery_are_logged_once(log: pytest.LogCaptureFixture) -> None:
    """Each kind of failure is one line while it lasts, and so is its end."""
    fixture = WatchFixture()
    other = ImdsError(PollOutcome.THROTTLED, "429")
    for answer in (IDLE, TIMEOUT, TIMEOUT, TIMEOUT, other, other, IDLE, IDLE):
        fixture.poll(answer)
    told = [(record.getMessage(), getattr(record, "reason", None)) for record in log.records]
    assert told == [
        ("IMDS answers", None),
        ("poll failed", "timeout"),
        ("poll failed", "throttled"),
        ("IMDS answers", None),
    ]
    assert facts(log.records[1], "levelname", "error") == {"levelname": "WARNING", "error": str(TIMEOUT)}
    assert facts(log.records[3], "endpoint", "instance") == {
        "endpoint": "http://imds.test",
        "instance": "WestNO_0",
    }


def test_every_poll_lets_the_disk_be_tried_again() -> None:
    """A disk that was full is seen to, whether IMDS answers or not."""
    fixture = WatchFixture()
    fixture.poll()
    fixture.poll(TIMEOUT)
    assert fixture.memory.retries == 2


def test_an_unchanged_answer_is_not_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes again cost no decoding and nothing to write, but are a success."""
    decoded: list[bytes] = []

    def decode(answer: bytes) -> Document:
        decoded.append(answer)
        return decode_document(answer)

    monkeypatch.setattr("exporter.watch.watch.decode_document", decode)
    fixture = WatchFixture()
    answer = body(raw_event())
    for one in (answer, answer, TIMEOUT, answer):
        fixture.poll(one)
    assert decoded == [answer]
    assert len(fixture.memory.steps) == 1
    assert (fixture.watch.snapshot.up, fixture.watch.snapshot.last_success) == (True, fixture.clock.now())
    assert fixture.watch.known.last_success == fixture.clock.now()


def test_a_start_is_not_watched_over_failed_polls() -> None:
    """An event that starts while IMDS is silent for over 30 s is complete at its end, without an impact."""
    fixture = WatchFixture()
    fixture.poll(IDLE)
    for _ in range(31):
        fixture.poll(TIMEOUT)
    for answer in (body(raw_event(**STARTED)), body(incarnation=2)):
        fixture.poll(answer)
    assert fixture.counted("completed") == 1
    assert fixture.value("impact_seconds_count", event_type="Freeze") == 0


def test_a_whole_life_is_counted() -> None:
    """Transitions, notice and impact arrive in the metrics, each once."""
    fixture = WatchFixture()
    fixture.poll()
    fixture.poll(body(raw_event()))
    fixture.poll(after=900)
    fixture.poll(body(raw_event(**STARTED), incarnation=2))
    fixture.poll(body(incarnation=3), after=7)
    fixture.poll(body(incarnation=3), after=7)
    assert [t for t in Transition if fixture.counted(t.value)] == ["scheduled", "started", "completed"]
    notice = (NOT_BEFORE - NOW - timedelta(seconds=2)).total_seconds()
    assert fixture.value("notice_seconds_sum", event_type="Freeze") == notice
    assert fixture.value("impact_seconds_sum", event_type="Freeze") == 7
    assert fixture.value("event_resources", event_id=FREEZE_ID, event_type="Freeze") is None


@pytest.mark.parametrize(("events", "expected"), [("self", 0), ("all", 1)])
def test_events_of_other_vms(events: Any, expected: int, log: pytest.LogCaptureFixture) -> None:
    """Other VMs' events are pending and logged always, and counted only where all are wanted."""
    fixture = WatchFixture(metrics=config.Metrics(events=events))
    fixture.poll(body(raw_event(**OTHERS), raw_event(EventId=REBOOT_ID, EventType="Reboot")))
    assert fixture.counted("scheduled") == expected
    assert fixture.counted("scheduled", "Reboot") == 1
    assert fixture.value("pending", event_type="Freeze", event_status="Scheduled", target="other") == 1
    assert fixture.value("event_resources", event_id=FREEZE_ID, event_type="Freeze") == (
        1 if expected else None
    )
    told = [record for record in log.records if record.getMessage() == "transition"]
    assert [record.__dict__["target"] for record in told] == ["other", "self"]


def test_exemplars_lead_to_the_trace() -> None:
    """A counted transition carries the event's trace id where the format allows: OpenMetrics."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event()))
    encode, _ = choose_encoder("application/openmetrics-text; version=1.0.0")
    text = encode(fixture.registry).decode()
    (line,) = (one for one in text.splitlines() if "transitions_total" in one and 'trace_id="' in one)
    assert line.startswith(
        'azure_scheduled_events_transitions_total{event_type="Freeze",transition="scheduled"} 1.0 # '
        f'{{trace_id="{trace_id(FREEZE_ID)}"}} 1.0'
    )


def test_a_transition_is_one_line_with_all_its_facts(log: pytest.LogCaptureFixture) -> None:
    """Whoever has only the log has all that Azure said, and what it was before."""
    fixture = WatchFixture()
    fixture.poll()
    log.clear()
    fixture.poll(body(raw_event(DurationInSeconds=9)))
    fixture.poll(body(raw_event(), incarnation=2))
    fixture.poll(body(raw_event(**STARTED), incarnation=3))
    fixture.poll(body(incarnation=4), after=7)
    assert [record.getMessage() for record in log.records] == ["transition"] * 4
    assert [record.levelname for record in log.records] == ["INFO"] * 4
    told = [record.__dict__["transition"] for record in log.records]
    assert told == ["scheduled", "updated", "started", "completed"]
    common = {
        "event_id": FREEZE_ID,
        "event_type": "Freeze",
        "event_source": "Platform",
        "resource_type": "VirtualMachine",
        "target": "self",
        "instance": "WestNO_0",
        "resources": ("WestNO_0", "WestNO_1"),
        "description": "Virtual machine is being paused.",
        "first_seen": NOW + timedelta(seconds=2),
    }
    assert all(facts(record, *common) == common for record in log.records)
    assert facts(log.records[0], "event_status", "not_before", "duration_seconds", "started") == {
        "event_status": "Scheduled",
        "not_before": NOT_BEFORE,
        "duration_seconds": 9,
        "started": None,
    }
    assert facts(log.records[1], "duration_seconds", "old_duration_seconds") == {
        "duration_seconds": 5,
        "old_duration_seconds": 9,
    }
    assert facts(log.records[3], "event_status", "started", "impact_seconds") == {
        "event_status": "Started",
        "started": NOW + timedelta(seconds=4),
        "impact_seconds": 7.0,
    }


def test_an_uneventful_poll_is_silent(log: pytest.LogCaptureFixture) -> None:
    """A poll that brings nothing new, even under a new number, leaves no line."""
    fixture = WatchFixture()
    fixture.poll(body(raw_event()))
    log.clear()
    fixture.poll()
    fixture.poll(body(raw_event(), incarnation=2))
    assert log.records == []


def test_last_success_is_noted_now_and_then() -> None:
    """An idle hour writes a few times when IMDS last answered, not at every poll."""
    fixture = WatchFixture()
    for _ in range(3600):
        fixture.poll()
    assert len(fixture.memory.successes) == 4
