"""Delivery of messages: what waits, what is repeated, what is given up, and what is remembered of it."""

import logging
import re
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exporter.model.events import trace_id
from exporter.model.jobs import HookOutcome
from exporter.model.lifecycle import HISTORY
from exporter.model.messages import Delivery, Failure, Rendered
from exporter.outputs.hooks.command import CommandResult
from exporter.outputs.notifications.outbox import Lane, Letter, Outbox
from exporter.outputs.notifications.protocol import NO_URL
from exporter.simulator import Fault
from tests.bench import Bench, Build
from tests.bench.senders import OK
from tests.builders import message, raw_event
from tests.clocks import NOW
from tests.state_support import alter, no_room_for_files

DOWN = Delivery(delivered=False, reason="it refuses connections")
ONCALL = "notifications: {targets: [{name: oncall, url: 'json://receiver.test'}], retry_for: 1h}\n"
# Where hours pass, as each poll is a real request.
SELDOM = "imds: {poll_interval: 1m}\n"
LATE = "; it could not be delivered before"
TWO = ONCALL.replace("'}]", "'}, {name: backup, url: 'json://b.test'}]")
_WITHOUT_ZONE = b'{"payload": %s}' % msgspec.json.encode(Letter(message())).replace(b'00Z"', b'00"')


def events(*ids: str, **fields: Any) -> list[dict[str, Any]]:
    return [raw_event(EventId=one, NotBefore="", **fields) for one in ids]


def told(bench: Bench, target: str = "oncall") -> list[str]:
    """Return the events of the messages that arrived."""
    return [one.incident.partition("/")[0] for one in bench.sent(target)]


def leave(bench: Bench, *listed: dict[str, Any], target: str = "oncall") -> None:
    """List events whose messages are not sent before the next start."""
    bench.loops.idle.add(f"notify {target}")
    bench.show(*listed)
    bench.loops.idle.clear()


def test_a_service_that_has_a_message_gets_it_no_more(build: Build) -> None:
    """Nor after a restart, while another one of the target is down."""
    bench = build(ONCALL.replace("1h", "4h") + SELDOM)
    ids = [f"{number:02}" for number in range(15)]
    bench.sender().answer = lambda _: Delivery(False, "Slack: no", services=("mail",))
    bench.show(*events(*ids[:13]), wait=1800)
    bench.kill()
    bench.show(*events(*ids), wait=1800)
    bench.sender().answer = lambda _: OK
    bench.advance(400)
    had = [one.message.key for one in bench.sender().requests if "mail" not in one.services]
    assert sorted(had) == ids
    assert bench.metric("notifications_pending") == 0


@pytest.mark.parametrize("not_taken", [Delivery(True, skipped=True), Delivery(False, "no", Failure.REFUSED)])
def test_an_incident_that_waited(build: Build, not_taken: Delivery) -> None:
    """The last message that the service takes opens it, unless its event is over; no other is given up."""
    bench = build(ONCALL + SELDOM)
    bench.sender().incidents, bench.sender().answer = True, lambda _: DOWN
    bench.reload()
    bench.show(*events("a", "over"), wait=60)
    bench.show(*events("a", DurationInSeconds=9), wait=60)
    bench.sender().answer = lambda one: not_taken if one.resolves or "changed" in one.title else OK
    bench.advance(1800)
    assert (told(bench), bench.metric("notifications_pending")) == (["a"], 0)
    assert bench.metric("notifications_total", outcome="refused") == (0 if not_taken.delivered else 3)


def test_a_storm_goes_out_gravest_first(build: Build) -> None:
    """What lasts longer than two seconds does not hold up what is critical."""
    bench = build(ONCALL)
    freezes = events(*"abcde")

    def answer(_: Rendered) -> Delivery:
        bench.clock.pass_seconds(1)
        if len(bench.sender().tried) == 1:
            listed = [*freezes, *events("grave", EventType="Preempt")]
            bench.simulator.set_document({"DocumentIncarnation": 2, "Events": listed})
        return OK

    bench.sender().answer = answer
    bench.show(*freezes, wait=20)
    assert told(bench) == ["a", "b", "grave", "c", "d", "e"]


def test_the_clock_is_set(build: Build) -> None:
    """What it makes old is tried before it would be given up; what it makes new is not late or reordered."""
    bench = build(ONCALL)
    bench.sender().answer = lambda _: DOWN
    bench.show(*events("a"))
    bench.sender().answer = lambda _: OK
    bench.clock.set_wall(bench.clock.now() + timedelta(hours=2))
    bench.advance(60)
    assert (told(bench), LATE in bench.sent()[0].body) == (["a"], True)
    bench.sender().answer = lambda _: DOWN
    bench.show(*events("a", "b"))
    bench.clock.set_wall(bench.clock.now() - timedelta(hours=2))
    bench.show(*events("a", "b", "c"))
    bench.sender().answer = lambda _: OK
    bench.advance(60)
    assert told(bench) == ["a", "b", "c"]
    assert bench.metric("notification_delay_seconds_bucket", le="0.3") == 1


def test_all_that_is_too_old_is_given_up_at_once(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """One attempt that fails is enough; each is counted, and logged with what was in it; newer ones stay."""
    bench = build(ONCALL)
    bench.sender().answer = lambda _: DOWN
    bench.loops.idle.add("notify oncall")
    old = events(*map(str, range(450)))
    bench.show(*old)
    bench.clock.pass_seconds(1800)
    bench.show(*old, *events("new"))
    bench.loops.idle.clear()
    bench.restart(after=1801)
    assert len(bench.sender().tried) <= 2
    assert bench.metric("notifications_total", outcome="expired") == 450
    assert bench.metric("notifications_pending") == 1
    lost = [vars(record) for record in caplog.records if record.getMessage() == "message given up"]
    assert len(lost) == 450
    facts = {"target": "oncall", "transition": "scheduled", "event_type": "Freeze", "instance": "WestNO_0"}
    assert all(one | facts == one for one in lost)


def test_a_failing_target_is_one_problem(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once, and over with the first delivery, which a reload brings forward."""
    caplog.set_level(logging.INFO, "exporter.health")
    bench = build(ONCALL)
    bench.sender().answer = lambda _: DOWN
    bench.show(*events("a"), wait=100)
    problem = "notifications_failing: target oncall (json://receiver.test): it refuses connections"
    assert bench.api("problems") == [problem]
    bench.sender().answer = lambda _: OK
    assert (bench.reload(), told(bench), bench.api("problems")) == (200, ["a"], [])
    counts = [bench.metric("notifications_total", outcome=name) for name in ("delivered", "failed")]
    assert counts == [1, len(bench.sender().tried) - 1]
    logged = [one.getMessage() for one in caplog.records if one.name == "exporter.health"]
    assert logged == ["degraded", "recovered"]


@pytest.mark.parametrize(
    ("failure", "outcome"), [(Failure.REFUSED, "refused"), (Failure.UNANSWERED, "expired")]
)
def test_what_is_tried_three_times(
    build: Build, caplog: pytest.LogCaptureFixture, failure: Failure, outcome: str
) -> None:
    """Also across restarts; other events are told meanwhile, and the same one's next message afterwards."""
    bench = build(f"{ONCALL}imds: {{poll_interval: 10s}}")

    def answer(rendered: Rendered) -> Delivery:
        is_bad = rendered.incident.startswith("bad") and "scheduled" in rendered.title
        return Delivery(False, "no", failure) if is_bad else OK

    bench.sender().answer = answer
    bench.show(*events("bad", "a"), wait=10)
    problem = "notifications_failing: target oncall (json://receiver.test): no"
    assert (told(bench), bench.api("problems")) == (["a"], [problem])
    bench.restart()
    bench.advance(900)
    assert [one.message.key for one in bench.sender().requests].count("bad") == 3
    assert bench.metric("notifications_total", outcome=outcome) == 1
    assert bench.metric("notifications_pending") == 0
    assert bench.api("problems") == [f"{problem}; 1 given up after 3 attempts"]
    (record,) = [vars(one) for one in caplog.records if one.getMessage() == "message given up"]
    assert (record["outcome"], record["reason"]) == (outcome, "no")
    bench.show(*events("bad", "a", DurationInSeconds=9), wait=10)
    assert (sorted(told(bench)), bench.api("problems")) == (["a", "a", "bad"], [])


def test_a_corrected_address_has_no_results_yet(build: Build) -> None:
    """A failure is one of the old address; a reload that does not concern the target keeps it."""
    bench = build(ONCALL)
    bench.sender().answer = lambda _: Delivery(False, "it is gone", Failure.REFUSED)
    bench.show(*events("a"), wait=500)
    bench.reload(f"{ONCALL}metrics: {{resources: true}}")
    (target,) = bench.api("targets")
    assert (target["delivers"], len(bench.api("problems"))) == (False, 1)
    bench.reload(ONCALL.replace("receiver", "elsewhere"))
    (target,) = bench.api("targets")
    assert (target["delivers"], target["pending"], bench.api("problems")) == (None, 0, [])


def test_a_changed_file_of_an_address(build: Build, tmp_path: Path) -> None:
    """The next attempt uses its new address; while it has none, the former one is used, and that is shown."""
    file = tmp_path / "url"
    file.write_text("json://first.test")
    bench = build(f"notifications: {{targets: [{{name: oncall, url_file: '{file}'}}]}}")

    def used() -> list[str]:
        tried, bench.sender().requests = bench.sender().requests, []
        return sorted({request.address.url for request in tried})

    def stays(why: str) -> None:
        bench.show(raw_event(EventId=why))
        assert used() == ["json://second.test"]
        kept = f"notifications.targets[0].url_file: {why}; the former address stays in use"
        assert bench.api("problems") == [f"reload_failed: target oncall: {kept}"]

    file.write_text("")
    bench.advance(60)
    (problem,) = bench.api("problems")
    assert problem.endswith("it must contain one Apprise URL; the former address stays in use")
    file.write_text("json://first.test")
    bench.sender().answer = lambda _: DOWN
    bench.show(raw_event())
    assert used() == ["json://first.test"]
    file.write_text("json://second.test")
    bench.sender().answer = lambda _: OK
    bench.advance(30)
    assert (used(), len(told(bench)), bench.api("problems")) == (["json://second.test"], 1, [])
    file.write_text("")
    stays("the file is empty; it must contain one Apprise URL")
    file.unlink()
    stays("the file cannot be read: No such file or directory")
    file.write_text("third")
    stays(NO_URL)
    file.write_text("json://third.test")
    bench.sender().refused = "Apprise does not accept it"
    stays(bench.sender().refused)
    bench.sender().refused = ""
    bench.show(raw_event(EventId="last"))
    assert (used(), bench.api("problems")) == (["json://third.test"], [])


def test_a_changed_secret_of_kubernetes(build: Build, tmp_path: Path) -> None:
    """The kubelet exchanges a link to the folder of all files, and what the exporter opens stays a link."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "oncall").write_text(f"json://{name}.test")
    (tmp_path / "..data").symlink_to("first")
    (tmp_path / "oncall").symlink_to("..data/oncall")
    bench = build(f"notifications: {{targets: [{{name: oncall, url_file: '{tmp_path}/oncall'}}]}}")
    bench.show(raw_event())
    (tmp_path / "..data_tmp").symlink_to("second")
    (tmp_path / "..data_tmp").replace(tmp_path / "..data")
    bench.show(raw_event(EventId="last"))
    assert {request.address.url for request in bench.sender().requests} == {
        "json://first.test",
        "json://second.test",
    }


@pytest.mark.parametrize(("changed", "known"), [("backup", ("one",)), ("oncall", ())])
def test_a_reload_during_an_attempt(build: Build, changed: str, known: tuple[str, ...]) -> None:
    """Its failure counts, with the services that have the message, unless the target is another now."""
    bench = build(TWO)
    bench.loops.idle.add("notify backup")
    moved = TWO.replace(f"{changed}, url: 'json://", f"{changed}, url: 'json://new.")

    def meanwhile() -> Delivery:
        bench.reload(moved.replace("targets: [", "targets: [{name: first, url: 'json://c.test'}, "))
        return Delivery(False, "no", Failure.UNANSWERED, services=("one",))

    bench.senders.held = meanwhile
    bench.show(*events("a"), wait=60)
    (request,) = bench.sender().requests
    assert request.services == known
    assert request.storage == str(bench.state / "apprise")


def test_what_some_services_have_by_then(build: Build) -> None:
    """It is known after a stop while the message is being sent."""
    bench = build(ONCALL)
    bench.senders.held = lambda: Delivery(False, "no", Failure.UNANSWERED, services=("one",))
    bench.show(*events("a"))
    bench.restart()
    bench.advance(60)
    (request,) = bench.sender().requests
    assert request.services == ("one",)


def test_the_delay_of_a_message(build: Build) -> None:
    """It is the time from the transition to the delivery, with the attempts that failed."""
    bench = build(ONCALL)
    bench.sender().answer = lambda _: DOWN
    bench.show(*events("a"), wait=5)
    bench.sender().answer = lambda _: OK
    bench.advance(60)
    delivered = bench.sender().requests[-1]
    delay = (delivered.now - delivered.message.at).total_seconds()
    assert delay > 3
    assert bench.metric("notification_delay_seconds_sum") == pytest.approx(delay)


def test_a_message_that_is_dropped_while_it_is_sent(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted once, as dropped."""
    bench = build(ONCALL)

    def meanwhile() -> Delivery:
        monkeypatch.setattr(Outbox, "most_bytes", 2000)
        bench.show(*events("a", "b"))
        assert (bench.metric("notifications_pending"), told(bench)) == (1, [])
        return OK

    bench.senders.held = meanwhile
    bench.show(*events("a"), wait=60)
    assert told(bench) == ["b"]
    counts = [bench.metric("notifications_total", outcome=name) for name in ("delivered", "expired")]
    assert (counts, bench.metric("notification_delay_seconds_count")) == ([1, 1], 1)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_target_that_goes_and_comes_back(
    build: Build, caplog: pytest.LogCaptureFixture, is_late: bool
) -> None:
    """Messages for one that is no longer configured are logged, and sent if it comes back in time."""
    bench = build(ONCALL)
    bench.sender().answer = lambda _: DOWN
    bench.show(*events("a"))
    bench.reload(ONCALL.replace("oncall", "other"))
    (record,) = (vars(one) for one in caplog.records if one.name == "exporter.outputs.notifications.output")
    assert record["message"] == "messages are waiting for a target that is not configured"
    assert (record["target"], record["count"]) == ("oncall", 1)
    bench.sender().answer = lambda _: OK
    bench.clock.pass_seconds(3601 if is_late else 0)
    bench.advance(60)
    bench.reload(TWO)
    assert (told(bench), told(bench, "backup")) == ([] if is_late else ["a"], [])
    assert bench.metric("notifications_total", target="oncall", outcome="expired") == is_late


@pytest.mark.parametrize("damaged", [b"{", b'{"payload": {"message": {}}}', b"\xff", _WITHOUT_ZONE])
def test_what_cannot_be_read_is_given_up(build: Build, damaged: bytes) -> None:
    """A damaged row, or one whose time has no zone, holds up no other."""
    bench = build(ONCALL)
    leave(bench, *events("a", "b"))
    bench.app.stop()
    statement = "UPDATE entries SET value = ? WHERE kind = 'notifications' AND key LIKE '%\"a\"%'"
    alter(bench.state, statement, damaged)
    bench.start()
    assert told(bench) == ["b"]
    assert bench.metric("notifications_total", outcome="expired") == 1
    assert bench.metric("notifications_pending") == 0


def test_traces_of_messages(build: Build) -> None:
    """A message carries its trace; each is a span when it has arrived or was given up."""
    bench = build(f"{ONCALL}tracing: {{enabled: true}}")
    bench.show(*events("a"))
    bench.sender().answer = lambda _: DOWN
    ids = [f"{number:02}" for number in range(12)]
    bench.show(*events("a", *ids))
    bench.sender().answer = lambda _: OK
    bench.show(*events("a", *ids), wait=60)
    traces = {one.traceparent[:36] for one in bench.sent()}
    assert traces == {f"00-{trace_id(one)}-" for one in ("a", *ids)}
    bench.sender().answer = lambda _: DOWN
    bench.show(*events("a", *ids, "late"))
    bench.clock.pass_seconds(3601)
    bench.advance(400)
    found = [span for span in bench.receiver.spans if span.name == "notify oncall"]
    assert [bool(span.error) for span in found] == [False] * 13 + [True]
    # From the transition until the message has arrived.
    assert [(span.end - span.start).total_seconds() > 1 for span in found] == [False] + [True] * 13
    assert found[-1].trace_id == trace_id("late")


def test_a_target_that_asks_for_patience(build: Build) -> None:
    """It gets nothing for so long."""
    bench = build(ONCALL)
    busy = Delivery(False, "429", retry_after=90)
    bench.sender().answer = lambda one: busy if "Freeze" in one.title else OK
    bench.show(*events("a"), wait=5)
    asked = bench.sender().requests[0].now
    bench.show(*events("a"), *events("b", EventType="Preempt"))
    bench.sender().answer = lambda _: OK
    bench.advance(400)
    tried = {one.message.key: (one.now - asked).total_seconds() for one in bench.sender().requests}
    assert tried == pytest.approx({"a": 90, "b": 90}, abs=2)
    assert len(bench.sender().requests) == 3


def test_how_long_a_message_waits(build: Build) -> None:
    """Steps of the clock do not count, restarts do, and after a reboot the time begins anew."""
    bench = build(ONCALL + SELDOM)
    bench.sender().answer = lambda _: DOWN
    bench.show(*events("a"), wait=60)
    bench.clock.set_wall(NOW + timedelta(hours=5))
    bench.advance(1700)
    bench.restart(after=1700)
    assert bench.metric("notifications_pending") == 1
    bench.clock.reboot()
    bench.kill()
    bench.advance(3000)
    assert bench.metric("notifications_pending") == 1
    bench.advance(1000)
    assert bench.metric("notifications_total", outcome="expired") == 1
    bench.show(*events("a", "b"), wait=60)
    bench.advance(1700)
    bench.kill()
    bench.clock.set_wall(NOW)
    bench.advance(2200)
    assert bench.metric("notifications_total", outcome="expired") == 1


def test_what_an_event_leaves_when_it_is_forgotten(build: Build) -> None:
    """Its marks go, so that it is told anew if it returns; what still waits is sent."""
    bench = build(TWO)
    bench.loops.idle.add("notify backup")
    bench.show(*events("a"))
    bench.show()
    bench.clock.pass_seconds(HISTORY.total_seconds() + 1)
    bench.show(*events("b"))
    assert bench.api("past") == []
    bench.loops.idle.clear()
    bench.restart()
    assert sorted(told(bench, "backup")) == ["a", "b"]
    bench.show(*events("a", "b"))
    assert told(bench) == ["a", "a", "b", "a"]


def test_a_full_disk_loses_and_repeats_nothing(build: Build) -> None:
    """Messages go out from memory, and what went out is on the disk once it has room again."""
    bench = build(ONCALL)
    with no_room_for_files():
        bench.show(*events("a", "b"))
        assert "state_unwritable" in str(bench.api("problems"))
    bench.advance(20)
    assert bench.api("problems") == []
    bench.kill()
    bench.advance(5)
    assert told(bench) == ["a", "b"]


@pytest.mark.parametrize("status", ["Scheduled", "Started"])
def test_a_late_message_knows_that_its_event_is_over(build: Build, status: str) -> None:
    """What a webhook gets after the end has the end."""
    bench = build(ONCALL.replace("url: 'json:", "webhook: 'http:"))
    bench.sender().answer = lambda _: DOWN
    bench.show(*events("a", EventStatus=status))
    bench.show()
    bench.sender().answer = lambda _: OK
    bench.advance(60)
    assert [one.resolves for one in bench.sent()] == [True, True]
    assert status.lower() in bench.sent()[0].title


def test_an_internal_error_ends_no_worker(
    build: Build, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is reported without its text, which the log has at its lowest level, and the worker goes on."""
    caplog.set_level(logging.DEBUG, "exporter")
    bench = build(ONCALL)

    def lane(*_: object) -> Lane:
        raise sqlite3.OperationalError("CANARY")

    with monkeypatch.context() as patch:
        patch.setattr(Outbox, "lane", lane)
        bench.show(*events("a"))
        (problem,) = bench.api("problems")
        assert problem.endswith("target oncall: OperationalError in this program")
        assert "CANARY" in next(str(one.exc_info) for one in caplog.records if one.msg == "a worker failed")
    bench.advance(60)
    assert (told(bench), bench.api("problems")) == (["a"], [])


@pytest.mark.parametrize(
    ("own", "title"),
    [("{}", "T"), ("{format: text}", "[INFO]"), ("{title: '{{1 // (event.type != \"Freeze\")}}'}", "[INFO]")],
)
def test_a_target_without_templates_has_the_general_ones(
    build: Build, caplog: pytest.LogCaptureFixture, own: str, title: str
) -> None:
    """So has one whose section is empty; any key in it replaces them all. Failures are logged once."""
    target = ONCALL.replace("'}", f"', templates: {own}}}").replace(
        "retry_for", "templates: {title: T}, retry_for"
    )
    bench = build(target)
    bench.show(*events("a", "b"))
    assert [message.title.startswith(title) for message in bench.sent()] == [True, True]
    remarks = [one.__dict__["key"] for one in caplog.records if one.msg.startswith("template failed")]
    assert remarks == ["templates.title"] * ("title" in own)


def test_a_message_has_the_facts_of_its_moment(build: Build) -> None:
    """Also one that is sent after a restart, and one about the watch, while IMDS does not answer."""
    bench = build(ONCALL)
    bench.loops.idle.add("notify oncall")
    bench.show(raw_event(EventType="Reboot"))
    bench.simulator.set_fault(Fault("error"))
    bench.advance(400)
    bench.loops.idle.clear()
    bench.restart()
    assert [one.title.split()[1] for one in bench.sent()] == ["Blind:", "Reboot"]
    assert all("VM size: " in one.body for one in bench.sent())


def test_what_changed_keeps_its_type(build: Build) -> None:
    """A template may do with a start what Python can, also after a restart; a description stays text."""
    change = "{{ one.old.minute if one.field == 'not_before' else one.old }}"
    body = f"{{% for one in changes %}}{change} {{% endfor %}}{{{{ event.not_before.hour }}}}"
    bench = build(ONCALL.replace("retry_for", f'templates: {{body: "{body}", format: text}}, retry_for'))
    before = raw_event(EventId="a", Description="2026-03-04T22:00:00Z")
    bench.show(before)
    leave(bench, before | {"NotBefore": "Wed, 04 Mar 2026 23:30:00 GMT", "Description": ""})
    bench.kill()
    assert bench.sent()[-1].body == "15 2026-03-04T22:00:00Z 23"


def test_the_order_of_one_document(build: Build) -> None:
    """An event that is updated and imminent at once is not put behind one that is new."""
    bench = build(ONCALL + "events: {imminent: [10m]}")
    for number in (1, 2):
        near = raw_event(
            EventId=f"near {number}", NotBefore=(bench.clock.now() + timedelta(hours=1)).isoformat()
        )
        bench.show(near)
        moved = near | {"NotBefore": (bench.clock.now() + timedelta(minutes=5)).isoformat()}
        bench.show(moved, *events(f"new {number}", EventType="Preempt"), wait=5)
        assert [title.split()[2].rstrip(":") for title in bench.sender().titles[-3:]] == [
            "updated,",
            "imminent",
            "scheduled",
        ]
        bench.show(wait=60)


@pytest.mark.parametrize("lives", [2, 7])
def test_an_event_that_returns_while_the_target_is_down(build: Build, lives: int) -> None:
    """The end of a life comes before the next one, although that is graver: it leaves the incident open."""
    bench = build(ONCALL)
    bench.sender().answer = lambda _: DOWN
    for _ in range(lives - 1):
        bench.show(*events("a", EventType="Reboot"))
        bench.show()
    bench.show(*events("a", EventType="Reboot"))
    bench.sender().requests.clear()
    bench.sender().answer = lambda _: OK
    bench.advance(400)
    assert [one.message.transition for one in bench.sender().requests] == ["cancelled"] * (lives - 1) + [
        "scheduled"
    ]


@pytest.mark.parametrize("webhook", [False, True])
def test_what_a_message_stands_for_after_an_outage(build: Build, *, webhook: bool) -> None:
    """It names the messages that are left out; a webhook gets all, anyone each failed hook."""
    hooks = "hooks: [{name: drain, command: [/bin/true], match: {transitions: [scheduled]}}]"
    bench = build((ONCALL.replace("url: 'json:", "webhook: 'http:") if webhook else ONCALL) + hooks)
    bench.command_result = lambda _: CommandResult(HookOutcome.FAILED, 1, 0.0, "")
    bench.sender().answer = lambda _: DOWN
    bench.show(*events("a"), wait=5)
    bench.show(*events("a", EventStatus="Started"))
    bench.show(wait=5)
    bench.sender().requests.clear()
    bench.sender().answer = lambda _: OK
    bench.advance(60)
    told = [one.message.transition.value for one in bench.sender().requests]
    every = ["scheduled", "hook_failed", "started", "completed"]
    assert told == (every if webhook else ["hook_failed", "completed"])
    left_out = re.search("Earlier messages are left out: scheduled at .*, started at ", bench.sent()[-1].body)
    assert bool(left_out) is not webhook
