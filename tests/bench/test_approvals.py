"""Approvals by the whole program: what is held and why, reloads, and kills around a POST."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from exporter.clock import Clock, ahead
from exporter.imds.client import ImdsClient
from exporter.outputs.approval.approvals import Approvals
from exporter.simulator import Fault, Simulator, SimulatorServer
from tests.bench import VM, Bench, Build
from tests.bench.bench import start_nameless
from tests.builders import FREEZE_ID, REBOOT_ID, body, raw_event
from tests.outputs.approval.support import transitions

OFF = "approval: {mode: 'off'}"
APPROVE = "approval: {mode: 'on', rules: [{name: x, action: approve}]}"
HOLD = APPROVE.replace("action: approve", "action: hold")
REQUIRING = APPROVE.replace("approve}", "approve, require_hooks: [h]}")
UNANSWERED = Fault("drop", endpoint="scheduledevents", method="POST")
NO_NAME = "this VM does not know its own name"


def hook(command: str) -> str:
    """Return a section with a hook of the name that rules require."""
    return f"\nhooks: [{{name: h, command: [{command}]}}]"


def approval(bench: Bench) -> dict[str, str | None]:
    found: dict[str, str | None] = bench.api("current")[0]["approval"]
    return found


@pytest.mark.parametrize(
    ("text", "fields", "why"),
    [
        (HOLD, {}, ("x", "the rule holds it")),
        (APPROVE, {"Resources": []}, (None, "Azure does not say which VMs it affects")),
    ],
)
def test_why_an_event_is_held(
    build: Build,
    caplog: pytest.LogCaptureFixture,
    text: str,
    fields: dict[str, object],
    why: tuple[str | None, str],
) -> None:
    """The rule and the reason are in the API, on the page, and in the log once; they go with the event."""
    caplog.set_level(logging.INFO, "exporter")
    rule, reason = why
    bench = build(text)
    bench.show(raw_event(**fields), wait=60)
    assert approval(bench)["rule"] == rule
    assert (approval(bench)["reason"] or "").startswith(reason)
    assert reason in bench.request("/")[1]
    assert [record.getMessage() for record in caplog.records].count("approval") == 1
    bench.show()
    assert set(bench.api("past")[0]["approval"].values()) == {None}
    assert bench.approved == []


def test_an_event_that_cannot_be_read_any_more(build: Build) -> None:
    """Its former content approves nothing, whenever it is due; it is approved once it can be read again."""
    bench = build(APPROVE.replace("approve}", "approve, delay: 10s}"))
    bench.show(raw_event(), wait=5)
    text = body(raw_event(DurationInSeconds="1e999"), incarnation=2)
    bench.simulator.set_document(text.replace(b'"1e999"', b"1e999"))
    bench.advance(60)
    assert (approval(bench)["state"], bench.approved) == ("hold", [])
    bench.show(raw_event(), wait=5)
    assert bench.approved == [FREEZE_ID]


def test_an_approval_in_messages_and_in_the_api(build: Build) -> None:
    """A message about it names the rule, and so does the API."""
    tags = "metrics: {tags: [Environment, cost-center]}\n"
    body = "'{{ vm.tags.Environment }}; {% for fact in facts %}{{ fact.label }}={{ fact.text }} {% endfor %}'"
    notify = f"notifications: {{targets: [{{name: a, url: 'json://a.test'}}], templates: {{body: {body}}}}}\n"
    bench = build(tags + notify + APPROVE)
    bench.show(raw_event(), wait=60)
    scheduled, approved = [one.body for one in bench.sent("a")]
    assert approved.startswith("demo; ")
    assert "Approved by=rule x" in approved
    assert "Tags=Environment: demo" in scheduled
    assert approval(bench) == {"state": "approved", "rule": "x", "reason": "this exporter approved it"}


def test_an_approval_under_the_newest_id(build: Build) -> None:
    """The metric names an event that starts under another id as its other series do."""
    bench = build(APPROVE)
    bench.show(raw_event(), wait=5)
    bench.show(raw_event(EventId=REBOOT_ID, EventStatus="Started", NotBefore=""))
    assert bench.metric("event_approval", event_id=REBOOT_ID, state="approved") == 1


def test_reloads(build: Build) -> None:
    """A rule that comes with a reload approves what is pending; one that goes is neither tried nor shown."""
    bench = build(HOLD)
    bench.show(raw_event())
    bench.reload(APPROVE)
    bench.advance(5)
    assert bench.approved == [FREEZE_ID]
    bench.simulator.set_fault(UNANSWERED)
    reboot = raw_event(EventId=REBOOT_ID)
    bench.show(reboot, wait=60)
    assert approval(bench)["state"] == "failed"
    for text, state in ((HOLD, "hold"), (OFF, None), (APPROVE.replace("'on'", "dry_run"), "dry_run")):
        bench.simulator.set_fault(Fault("error"))
        bench.reload(text)
        assert approval(bench)["state"] == state
        bench.simulator.set_fault(None)
        bench.advance(60)
        assert approval(bench)["state"] == state
    assert bench.approved == [FREEZE_ID]
    bench.reload(APPROVE)
    bench.advance(5)
    assert bench.approved == [FREEZE_ID, REBOOT_ID]


def test_a_required_hook_that_goes_and_comes_back(build: Build) -> None:
    """What it did not run for meanwhile is held with that reason; what it runs for is approved at once."""
    bench = build(REQUIRING + hook("h"))
    bench.loops.idle.add("hooks")
    bench.show(raw_event())
    assert (approval(bench)["reason"] or "").endswith("has not ended yet")
    bench.loops.idle.clear()
    bench.reload(OFF)
    bench.reload(REQUIRING + hook("h"))
    assert (approval(bench)["reason"] or "").endswith("did not run for it")
    bench.show(raw_event(EventId="b"))
    assert bench.approved == ["b"]


def test_a_required_hook_of_an_earlier_life(build: Build) -> None:
    """Its success says nothing about an event that is listed again, and for which it does not run."""
    bench = build(REQUIRING + hook("h").replace("{", "{match: {min_notice: 10m}, ", 1))
    bench.show(raw_event(), wait=600)
    bench.show()
    bench.show(raw_event(), wait=60)
    assert (approval(bench)["reason"] or "").endswith("did not run for it")
    assert bench.approved == [FREEZE_ID]


FREEZES = (
    "approval: {mode: 'on', max_per_hour: 1, "
    "rules: [{name: x, match: {event_types: [Freeze], max_duration: 8s}, action: approve}]}"
)
Then = Callable[[Bench], object]


def listing(**fields: Any) -> Then:
    """Return the act of listing the event with other fields, 8 s before the exporter goes on."""
    return lambda bench: bench.show(raw_event(**fields), wait=8)


def after_recording(bench: Bench, monkeypatch: pytest.MonkeyPatch, then: Then) -> None:
    """Call ``then`` while the disk records the next approval."""
    decide = Approvals.decide

    def slow(approvals: Approvals, life_key: str, rule: str) -> bool:
        monkeypatch.setattr(Approvals, "decide", decide)
        is_durable = decide(approvals, life_key, rule)
        then(bench)
        return is_durable

    monkeypatch.setattr(Approvals, "decide", slow)


def in_the_rate_limiter(bench: Bench, monkeypatch: pytest.MonkeyPatch, then: Then) -> None:
    """Call ``then`` while the next approval waits for the rate limit."""
    del monkeypatch

    def wait(_: object) -> None:
        bench.before_answer = lambda _: None
        then(bench)

    bench.before_answer = wait


@pytest.mark.parametrize("wait", [after_recording, in_the_rate_limiter])
@pytest.mark.parametrize(
    "then",
    [
        listing(EventType="Reboot", Resources=["WestNO_0", "WestNO_1", "WestNO_2"]),
        listing(DurationInSeconds=-1),
        listing(Resources=["WestNO_0", None]),
        listing(EventStatus="Started"),
        lambda bench: bench.show(wait=8),
        lambda bench: bench.reload(OFF),
        lambda bench: bench.reload(HOLD),
    ],
)
def test_what_changed_before_the_request_is_not_approved(
    build: Build,
    monkeypatch: pytest.MonkeyPatch,
    wait: Callable[[Bench, pytest.MonkeyPatch, Then], None],
    then: Then,
) -> None:
    """A decision on a former document or by former rules is not sent; it is no failure and not counted."""
    bench = build(FREEZES)
    wait(bench, monkeypatch, then)
    bench.show(raw_event(DurationInSeconds=5), wait=30)
    assert bench.approved == []
    assert bench.metric("approvals_total", outcome="failed") in (0, None)
    bench.show(raw_event(EventId="b", DurationInSeconds=5))
    bench.reload(FREEZES)
    bench.advance(5)
    assert bench.approved == ["b"]


@pytest.mark.parametrize("wait", [after_recording, in_the_rate_limiter])
def test_a_document_that_is_older_than_a_poll_approves_nothing(
    build: Build, monkeypatch: pytest.MonkeyPatch, wait: Callable[[Bench, pytest.MonkeyPatch, Then], None]
) -> None:
    """If the exporter stood still in between, it asks IMDS again first."""
    bench = build(APPROVE)
    wait(bench, monkeypatch, lambda bench: bench.clock.pass_seconds(8))
    begun = bench.clock.monotonic()
    bench.show(raw_event(), wait=10)
    newest = max(number for number, (_, ids) in enumerate(bench.asked) if ids)
    at, _ = bench.asked[newest]
    assert bench.approved == [FREEZE_ID]
    assert (at >= begun + 8, bench.asked[newest - 1]) == (True, (at, ""))


def test_a_document_that_is_still_being_taken_in(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the moment that it has been fetched, nothing is sent by the one before it."""
    bench, approve = build(FREEZES), ImdsClient.approve
    is_fetched, is_sent = threading.Event(), threading.Event()
    poll = threading.Thread(target=bench.show, args=[raw_event(EventType="Reboot")])

    def taking_in(clock: Clock) -> float:
        is_fetched.set()
        assert is_sent.wait(60)
        return ahead(clock)

    def approving(client: ImdsClient, event_id: str, confirm: Callable[[], None]) -> None:
        monkeypatch.setattr("exporter.watch.watch.ahead", taking_in)
        poll.start()
        assert is_fetched.wait(60)
        try:
            approve(client, event_id, confirm)
        finally:
            is_sent.set()
            poll.join(60)

    monkeypatch.setattr(ImdsClient, "approve", approving)
    bench.show(raw_event())
    assert (is_sent.is_set(), bench.approved) == (True, [])


def test_a_slow_disk_does_not_keep_the_exporter_from_looking(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each document meanwhile allows, too, is approved as soon as it is recorded, by the newest one."""
    bench = build(APPROVE)
    after_recording(bench, monkeypatch, lambda bench: bench.advance(8))
    before = len(bench.asked)
    bench.show(raw_event())
    assert [ids for _, ids in bench.asked[before:]].count("") >= 8
    assert bench.approved == [FREEZE_ID]


@pytest.mark.parametrize("wait", [after_recording, in_the_rate_limiter])
def test_a_reload_with_another_address(
    build: Build, monkeypatch: pytest.MonkeyPatch, wait: Callable[[Bench, pytest.MonkeyPatch, Then], None]
) -> None:
    """What is about to be approved at the former address is approved at the new one alone."""
    with SimulatorServer(Simulator(idle=True, vm_name=VM, requests_per_second=0)) as former:
        text = f"{APPROVE}\nimds: {{endpoint: '%s'}}"
        bench = build(text % former.url, imds_endpoint=None)
        bench.announce(raw_event())
        wait(bench, monkeypatch, lambda bench: bench.reload(text % bench.imds.url))
        former.simulator.set_document(body(raw_event()))
        bench.advance(5)
        assert (former.simulator.approvals, bench.approved) == ((), [FREEZE_ID])


def test_an_answer_after_the_end(
    build: Build, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted, logged and remembered, but nothing happens to an event that is over."""
    caplog.set_level(logging.INFO, "exporter")
    bench = build(APPROVE)
    approve = ImdsClient.approve

    def answered_late(client: ImdsClient, *given: Any) -> None:
        approve(client, *given)
        bench.show(raw_event(EventStatus="Started", NotBefore=""))
        bench.show()

    monkeypatch.setattr(ImdsClient, "approve", answered_late)
    bench.show(raw_event())
    (past,) = bench.api("past")
    assert [one["transition"] for one in past["transitions"]] == ["scheduled", "started", "completed"]
    assert bench.metric("approvals_total", outcome="approved") == 1
    assert "approved" in [record.getMessage() for record in caplog.records]
    bench.kill()
    (past,) = bench.api("past")
    assert [one["transition"] for one in past["transitions"]] == ["scheduled", "started", "completed"]


@pytest.mark.parametrize("leader", ["first", "any"])
def test_without_a_name(build: Build, leader: str) -> None:
    """While the VM's name is unknown nothing is approved, and the reason is shown; then it is."""
    bench = start_nameless(build, APPROVE.replace("rules", f"leader: {leader}, rules"))
    bench.show(raw_event(), wait=60)
    assert approval(bench) == {"state": "hold", "rule": None, "reason": NO_NAME}
    assert bench.approved == []
    bench.simulator.set_fault(None)
    bench.advance(15)
    assert bench.approved == [FREEZE_ID]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (HOLD + hook("good"), "the rule holds it"),
        (APPROVE.replace("x,", "x, match: {max_duration: 1s},"), "no rule matches"),
        (REQUIRING.replace("[h]", "[bad]") + "\nhooks: [{name: bad, command: [bad]}]", "did not run"),
        (APPROVE.replace("approve}", "approve, delay: 1h}"), "not before"),
        (APPROVE.replace("'on'", "dry_run"), "approval.mode is dry_run"),
        (OFF, None),
    ],
)
def test_what_is_forbidden_after_a_kill(build: Build, text: str, reason: str | None) -> None:
    """An approval without an answer is sent again only if the configuration still allows it."""
    allowed = REQUIRING + hook("good")
    bench = build(allowed)
    bench.simulator.set_fault(UNANSWERED)
    bench.show(raw_event(), wait=5)
    assert approval(bench)["state"] == "failed"
    bench.file.write_text(text)
    bench.kill()
    bench.simulator.set_fault(None)
    bench.advance(60)
    assert (reason is None) == (approval(bench)["reason"] is None)
    assert (reason or "") in (approval(bench)["reason"] or "")
    assert bench.approved == []
    bench.file.write_text(allowed)
    bench.kill()
    bench.advance(60)
    assert bench.approved == [FREEZE_ID]
    assert transitions(bench) == ["scheduled", "approved"]


def test_a_reload_waits_for_an_approval_that_is_being_sent(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on its way cannot be taken back: the answer to the reload comes after it."""
    bench, order = build(APPROVE), []
    bench.file.write_text(OFF)
    approve, reload = ImdsClient.approve, threading.Thread(target=bench.app.reload)

    def confirmed(confirm: Callable[[], None]) -> None:
        confirm()
        reload.start()
        reload.join(0.2)
        order.append(("sent", reload.is_alive()))

    def approving(client: ImdsClient, event_id: str, confirm: Callable[[], None]) -> None:
        approve(client, event_id, lambda: confirmed(confirm))

    monkeypatch.setattr(ImdsClient, "approve", approving)
    bench.show(raw_event())
    reload.join(60)
    assert (order, bench.approved) == ([("sent", True)], [FREEZE_ID])
    bench.show(raw_event(EventId="b"))
    assert bench.approved == [FREEZE_ID]
