"""Incidents: what opens one also closes it, whatever the routes match by then."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.errors import Mistakes
from exporter.model.jobs import HookOutcome
from exporter.model.lifecycle import Transition
from exporter.model.messages import Delivery, Failure
from exporter.outputs.hooks.command import CommandResult
from exporter.simulator import Fault
from tests.bench import Bench, Build
from tests.bench.bench import VM
from tests.bench.senders import OK
from tests.builders import FREEZE_ID, REBOOT_ID, raw_event
from tests.receivers import http_receiver
from tests.state_support import on_disk

STARTED = {"EventStatus": "Started", "NotBefore": ""}
REBOOT = {"EventType": "Reboot"}
OTHERS = ["WestNO_1", VM]
DOWN = Delivery(False, "down")
REFUSED = Delivery(False, "400", Failure.REFUSED)
UNANSWERED = Delivery(False, "no answer", Failure.UNANSWERED)
KEY = f"{FREEZE_ID}/{VM}"
# Where time passes, as each poll is a real request.
SELDOM = "imds: {poll_interval: 1m}\n"
ONCALL = "{name: oncall, url: 'json://receiver.test'}"
CHAT = "{name: chat, url: 'json://chat.test'}"
SCHEDULED = "match: {transitions: [scheduled]}"


def routed(route: str, rest: str = "") -> str:
    """Return a configuration with a route to a target."""
    return f"notifications: {{targets: [{ONCALL}], routes: [{{targets: [oncall], {route}}}]}}\n{rest}"


def knows_incidents(bench: Bench) -> None:
    """Make the service of the target one that knows incidents."""
    bench.sender().incidents = True
    bench.reload()


def states(bench: Bench) -> list[tuple[str, bool]]:
    """Return the key of the incident, and whether it is over, of each message that arrived."""
    return [(one.incident, one.resolves) for one in bench.sent()]


def fails(bench: Bench) -> None:
    bench.command_result = lambda _: CommandResult(HookOutcome.FAILED, 1, 0.0, "")


def narrow(bench: Bench) -> None:
    bench.reload(routed("match: {event_types: [Preempt]}"))


def widen(bench: Bench) -> None:
    bench.reload(routed("match: {event_types: [Preempt], target: any}"))


def without_routes(bench: Bench) -> None:
    bench.reload(f"notifications: {{targets: [{ONCALL}, {CHAT}], routes: [{{targets: [chat]}}]}}")


Play = Callable[[Bench], object]
STORIES: dict[str, tuple[str, tuple[dict[str, Any] | Play, ...]]] = {
    "event_types": ("match: {event_types: [Reboot]}", (REBOOT, {}, STARTED)),
    "scheduled": ("match: {transitions: [scheduled]}", ({}, STARTED)),
    "started": ("match: {transitions: [started]}", ({}, STARTED)),
    "imminent": ("match: {transitions: [imminent]}", ({}, lambda bench: bench.advance(900), STARTED)),
    "updated": ("match: {transitions: [updated]}", ({}, {"DurationInSeconds": 9})),
    "hook_failed": ("match: {transitions: [hook_failed]}", (fails, {}, STARTED)),
    "statuses": ("match: {statuses: [Scheduled]}", ({}, STARTED)),
    "min_notice": ("match: {min_notice: 10m}", ({}, STARTED)),
    "max_notice": ("match: {max_notice: 15m}", ({}, {"NotBefore": "Wed, 04 Mar 2026 23:30:00 GMT"})),
    "windows": ("match: {windows: [{to: '22:05'}]}", ({}, lambda bench: bench.advance(400), STARTED)),
    "min_duration": ("match: {min_duration: 4s}", ({}, STARTED | {"DurationInSeconds": 2})),
    "max_duration": ("match: {max_duration: 6s}", ({}, STARTED | {"DurationInSeconds": 60})),
    "resources": ("match: {resources: ['*_1']}", ({}, {"Resources": [VM]})),
    "leader": ("leader: first", ({}, STARTED | {"Resources": OTHERS})),
    "a route that a reload narrows": ("match: {}", ({}, narrow, STARTED)),
    "a route whose key a reload changes": ("match: {}", ({}, widen, STARTED)),
    "a route that a reload removes": ("match: {}", ({}, without_routes, STARTED)),
}


@pytest.mark.parametrize("event_type", ["Freeze", "Reboot"])
def test_what_services_with_incidents_get(build: Build, event_type: str) -> None:
    """A life that was never graver than info sends them nothing; of any other they get every message."""
    approve = "approval: {mode: 'on', rules: [{name: x, action: approve}]}\n"
    bench = build(routed("match: {}", approve + SELDOM))
    bench.show(raw_event(EventType=event_type), wait=61)
    bench.kill()
    bench.show(raw_event(EventType=event_type, **STARTED), wait=61)
    bench.show(wait=61)
    assert len(bench.sent()) == 4
    assert {one.is_incident for one in bench.sent()} == {event_type == "Reboot"}


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("name", STORIES)
def test_what_opens_an_incident_also_closes_it(build: Build, name: str, kill: bool) -> None:
    """By its own key and once, whatever has become of the event and the configuration, also over a kill."""
    route, story = STORIES[name]
    hook = "hooks: [{name: a, command: [a], match: {transitions: [scheduled]}}]\n"
    bench = build(routed(route, hook + SELDOM))
    knows_incidents(bench)
    for part in story:
        if callable(part):
            part(bench)
        else:
            bench.show(raw_event(**part), wait=61)
        if kill:
            bench.kill()
    assert states(bench)
    assert not [one for one in bench.sent()[:1] if one.resolves]
    bench.show(wait=61)
    found = states(bench)
    assert {key for key, _ in found} == {KEY}
    assert found[-1] == (KEY, True)
    assert bench.metric("notifications_pending", target="oncall") == 0


@pytest.mark.parametrize(
    ("answer", "retry_for", "ends"),
    [(REFUSED, "1h", 0), (DOWN, "1m", 0), (UNANSWERED, "1h", 1), (Delivery(True, skipped=True), "1h", 0)],
)
def test_an_incident_that_was_not_opened(build: Build, answer: Delivery, retry_for: str, ends: int) -> None:
    """No end is sent if the message was given up, unless it may have arrived, or if there was none."""
    text = routed(SCHEDULED).replace("targets:", f"retry_for: {retry_for}, targets:", 1)
    bench = build(text + SELDOM)
    knows_incidents(bench)
    bench.sender().answer = lambda _: answer
    bench.show(raw_event(), wait=900)
    assert bench.metric("notifications_pending") == 0
    bench.sender().answer = lambda _: OK
    bench.kill()
    bench.show(wait=400)
    assert states(bench) == [(KEY, True)] * ends
    assert bench.metric("notifications_pending") == 0


def test_an_incident_whose_message_waits(build: Build) -> None:
    """It says that it is over; if it is given up instead, no end is sent."""
    bench = build(routed(SCHEDULED, SELDOM))
    bench.sender().incidents, bench.sender().answer = True, lambda _: DOWN
    bench.reload()
    bench.show(raw_event(), wait=60)
    bench.sender().answer = lambda _: REFUSED
    bench.show(wait=900)
    tried = {one.message.transition for one in bench.sender().requests}
    assert tried == {Transition.SCHEDULED}
    assert bench.metric("notifications_pending") == 0
    bench.sender().answer = lambda _: DOWN
    bench.show(raw_event(), wait=60)
    bench.show(wait=60)
    bench.sender().answer = lambda _: OK
    bench.advance(400)
    assert states(bench) == [(KEY, True), (KEY, True)]


@pytest.mark.parametrize("incidents", [False, True])
def test_an_end_before_the_targets_are_checked(
    build: Build, monkeypatch: pytest.MonkeyPatch, *, incidents: bool
) -> None:
    """It goes to a service that knows incidents; whether it does is found out by sending."""
    bench = build(routed(SCHEDULED))
    bench.sender().incidents = incidents
    bench.show(raw_event())
    with monkeypatch.context() as unchecked:
        unchecked.setattr("exporter.outputs.notifications.checking.check", lambda *_: Mistakes())
        bench.restart()
        bench.show()
    assert [one.only_closes for one in bench.sent()[1:]] == [True] * incidents
    assert bench.metric("notifications_pending") == 0


@pytest.mark.parametrize("incidents", [False, True])
def test_only_services_with_incidents_get_what_no_route_leads_to_them(
    build: Build, *, incidents: bool
) -> None:
    """A chat, a webhook and a target that no message reached get no end; nothing waits for them."""
    hook = "{name: hook, webhook: 'http://hook.test'}"
    routes = (
        f"[{{targets: [oncall, hook], {SCHEDULED}}}, {{targets: [chat], match: {{event_types: [Reboot]}}}}]"
    )
    bench = build(f"notifications: {{targets: [{ONCALL}, {CHAT}, {hook}], routes: {routes}}}")
    for name in ("oncall", "chat", "hook"):
        bench.sender(name).incidents = incidents
    bench.reload()
    bench.show(raw_event())
    bench.show()
    counts = [len(bench.sent(name)) for name in ("oncall", "chat", "hook")]
    assert counts == [1 + incidents, 0, 1]
    records = [(target, number) for target, _, number, _ in on_disk(bench.state, "notifications")]
    assert records == [("oncall", 1), ("hook", 1), *[("oncall", 2)] * incidents]
    assert bench.metric("notifications_pending") == 0


@pytest.mark.parametrize("status", [200, 400])
def test_a_target_of_several_services(build: Build, tmp_path: Path, status: int) -> None:
    """Behind a tag each has a message once, whatever another answers; one with incidents gets the end."""
    file = tmp_path / "apprise.yml"
    target = "{name: oncall, tag: night}"
    with http_receiver() as pager, http_receiver(status) as chat:
        urls = {
            f"goalert://{pager.authority}/{REBOOT_ID}": "night",
            f"json://{chat.authority}": "night",
            f"json://{chat.authority}/another": "day",
        }
        file.write_text(f"urls: [{', '.join(f'{{{url!r}: [{{tag: {tag}}}]}}' for url, tag in urls.items())}]")
        targets = f"apprise_config: '{file}', targets: [{target}]"
        routes = f"routes: [{{targets: [oncall], {SCHEDULED}}}]"
        bench = build(f"notifications: {{{targets}, {routes}}}", real_senders=True)
        bench.show(raw_event(EventType="Reboot"), wait=120)
        reason = "JSON: it answered 400 (Bad Request)"
        assert (reason in str(bench.api("problems"))) is (status == 400)
        bench.kill()
        bench.show(wait=5)
    found = [(request.json["dedup"], request.json.get("action")) for request in pager.requests]
    assert found == [(KEY, None), (KEY, "close")]
    assert len(chat.requests) == (1 if status == 200 else 0)
    assert bench.metric("notifications_pending") == 0


def test_the_watch_closes_what_it_opened(build: Build) -> None:
    """A target that was told that the watch is blind gets the end, also if it is no target any more."""
    bench = build(f"notifications: {{targets: [{ONCALL}]}}")
    knows_incidents(bench)
    bench.simulator.set_fault(Fault("error"))
    bench.advance(400)
    bench.reload(f"notifications: {{targets: [{ONCALL}], watch: {{targets: []}}}}")
    bench.kill()
    bench.simulator.set_fault(None)
    bench.advance(60)
    assert states(bench) == [(f"watch/{VM}", False), (f"watch/{VM}", True)]


@pytest.mark.parametrize("kill", [False, True])
def test_an_incident_of_others_that_this_vm_joins(build: Build, kill: bool) -> None:
    """It goes on under its key, also for a route about others only, and the end for this VM closes it."""
    bench = build(routed("match: {target: other}"))
    knows_incidents(bench)
    bench.show(raw_event(Resources=["WestNO_1"]))
    bench.show(raw_event())
    if kill:
        bench.kill()
    bench.show(raw_event(**STARTED))
    assert states(bench) == [(FREEZE_ID, False)]
    bench.show(wait=5)
    assert states(bench) == [(FREEZE_ID, False), (FREEZE_ID, True)]
