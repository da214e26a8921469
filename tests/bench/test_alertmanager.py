"""Alerts about events, posted to stand-ins for Alertmanager."""

import base64
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from tests.bench import VM, Bench, Build
from tests.bench.bench import NAMELESS
from tests.builders import FREEZE_ID, REBOOT_ID, raw_event
from tests.clocks import NOW
from tests.receivers import Receiver, http_receiver

REBOOT = raw_event(EventId=REBOOT_ID, EventType="Reboot")
STARTED = raw_event(EventId=REBOOT_ID, EventType="Reboot", EventStatus="Started", NotBefore="")
PENDING, BEGUN = "ScheduledEventPending", "ScheduledEventStarted"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with http_receiver() as found:
        yield found


def settings(*receivers: Receiver, more: str = "", before: str = "") -> str:
    urls = ", ".join(f"'http://{before}{receiver.authority}'" for receiver in receivers)
    return f"alertmanager: {{urls: [{urls}]{more}}}"


def posted(receiver: Receiver) -> list[dict[str, Any]]:
    return [alert for request in receiver.requests for alert in request.json]


def held(bench: Bench, receiver: Receiver) -> dict[str, tuple[datetime, datetime | None]]:
    """Return the start and the end, None while active, of the last alert of each name and other labels."""
    found = {}
    for alert in posted(receiver):
        labels = alert["labels"]
        more = [labels[name] for name in ("team",) if name in labels]
        ends = datetime.fromisoformat(alert["endsAt"])
        over = ends if ends <= bench.clock.now() else None
        found["/".join([labels["alertname"], *more])] = datetime.fromisoformat(alert["startsAt"]), over
    return found


def seconds(bench: Bench, receiver: Receiver) -> dict[str, tuple[float, float | None]]:
    """Return `held` in seconds since the bench began."""
    return {
        name: ((starts - NOW).total_seconds(), (ends - NOW).total_seconds() if ends else None)
        for name, (starts, ends) in held(bench, receiver).items()
    }


def names(alerts: Sequence[dict[str, Any]]) -> list[str]:
    return [alert["labels"]["alertname"] for alert in alerts]


def test_an_event_is_an_alert_in_each_phase(build: Build, receiver: Receiver) -> None:
    """It is posted at once, at each change and every minute, and its end once; one of others is none."""
    more = ", labels: {cluster: west}, match: {target: any}"
    web = "web: {external_url: 'https://vm-1/', runbook_url: 'https://wiki/runbooks'}"
    bench = build(f"{web}\n{settings(receiver, more=more)}")
    bench.show(REBOOT, raw_event(Resources=["WestNO_9"]), wait=2)
    (alert,) = posted(receiver)
    assert receiver.requests[0].path == "/api/v2/alerts"
    assert alert["labels"] == {
        "alertname": PENDING,
        "instance_name": VM,
        "event_id": REBOOT_ID,
        "event_type": "Reboot",
        "event_source": "Platform",
        "phase": "scheduled",
        "severity": "warning",
        "cluster": "west",
    }
    summary = f"Reboot of {VM} scheduled, not before 2026-03-04 22:15:00 UTC"
    assert alert["annotations"]["summary"] == summary
    assert alert["annotations"]["runbook_url"] == f"https://wiki/runbooks/{PENDING}"
    assert alert["generatorURL"] == "https://vm-1/"
    posted_at = datetime.fromisoformat(alert["startsAt"])
    assert NOW < posted_at <= NOW + timedelta(seconds=2)
    ends = datetime.fromisoformat(alert["endsAt"]) - bench.clock.now()
    assert timedelta(minutes=14, seconds=55) < ends <= timedelta(minutes=15)

    bench.advance(121)
    assert [one["startsAt"] for one in posted(receiver)] == [alert["startsAt"]] * 3
    bench.show(REBOOT | {"NotBefore": ""}, wait=2)
    assert posted(receiver)[-1]["annotations"]["summary"] == f"Reboot of {VM} scheduled, time unknown"

    before = len(receiver.requests)
    bench.show(STARTED, wait=2)
    assert names(posted(receiver)[before:]) == [BEGUN, PENDING]
    phases = held(bench, receiver)
    assert phases[BEGUN] == (phases[PENDING][1], None)
    bench.show(wait=2)
    assert held(bench, receiver)[BEGUN][1] is not None
    count = len(receiver.requests)
    bench.advance(300)
    assert len(receiver.requests) == count
    assert bench.metric("notifications_total", target="alertmanager", outcome="delivered") == 4
    assert bench.metric("notifications_pending", target="alertmanager") == 0


def test_neither_a_kill_nor_an_outage_of_alertmanager_loses_an_end(build: Build, receiver: Receiver) -> None:
    """The alert goes on with the same start after a kill; the end is posted until accepted, and once."""
    bench = build(settings(receiver))
    bench.show(REBOOT, wait=2)
    before = seconds(bench, receiver)
    bench.kill()
    bench.advance(2)
    assert seconds(bench, receiver) == before
    assert len(posted(receiver)) == 2

    bench.show(STARTED, wait=2)
    receiver.mood = 503
    bench.show(wait=2)
    (ended,) = (datetime.fromisoformat(one["ended"]) for one in bench.api("past"))
    bench.advance(30)
    bench.kill()
    bench.advance(30)
    receiver.mood = 200
    count = len(receiver.requests)
    bench.advance(60)
    assert held(bench, receiver)[BEGUN][1] == ended
    assert sorted(names(posted(receiver)[-2:])) == [PENDING, BEGUN]
    bench.advance(300)
    assert len(receiver.requests) == count + 1


def test_an_end_while_alertmanager_is_down(build: Build, receiver: Receiver) -> None:
    """It is posted as of the moment when it came, also where only the labels are others from then on."""
    bench = build(settings(receiver))
    bench.show(REBOOT, wait=2)
    receiver.mood, at = 503, bench.clock.now()
    bench.reload(settings(receiver, more=", labels: {team: blue}"))
    bench.advance(30)
    receiver.mood = 200
    bench.advance(30)
    assert held(bench, receiver)[PENDING][1] == at


def test_a_renewal_that_fails(build: Build, receiver: Receiver) -> None:
    """It is tried again as soon as anything else, not in the next minute."""
    bench = build(settings(receiver))
    bench.show(REBOOT, wait=50)
    receiver.mood = 503
    bench.advance(20)
    assert len(bench.api("problems")) == 1
    receiver.mood = 200
    bench.advance(20)
    assert (len(posted(receiver)), bench.api("problems")) == (2, [])


def test_the_end_of_advice(build: Build, receiver: Receiver) -> None:
    """It is posted after a kill, too."""
    bench = build(settings(receiver))
    bench.show(raw_event(EventType="Preempt", EventStatus="Advisory"), wait=2)
    receiver.mood = 503
    bench.show(wait=2)
    bench.kill()
    receiver.mood = 200
    bench.advance(60)
    assert held(bench, receiver)[PENDING][1] is not None


def test_no_alert_ends_before_it_starts(build: Build, receiver: Receiver) -> None:
    """Alertmanager would refuse it, and with it all others, where the clock was set back meanwhile."""
    bench = build(settings(receiver))
    bench.show(REBOOT, wait=2)
    bench.clock.set_wall(bench.clock.now() - timedelta(hours=1))
    bench.show(wait=2)
    assert all(one["startsAt"] <= one["endsAt"] for one in posted(receiver))


def test_an_alert_keeps_its_name(build: Build, receiver: Receiver) -> None:
    """A reboot during which IMDS does not tell the VM's name neither ends it nor begins another one."""
    bench = build(settings(receiver))
    bench.show(REBOOT, wait=2)
    bench.simulator.set_fault(NAMELESS)
    bench.clock.reboot()
    bench.restart(after=60)
    bench.advance(5)
    bench.simulator.set_fault(None)
    bench.advance(60)
    assert {one["labels"].get("instance_name") for one in posted(receiver)} == {VM}
    assert held(bench, receiver)[PENDING][1] is None


def test_a_former_life_does_not_end_an_event_that_is_listed_again(build: Build, receiver: Receiver) -> None:
    """After a restart the ends of the last day are posted, but not those of alerts that are active again."""
    bench = build(settings(receiver))
    for events in ([REBOOT], [], [REBOOT]):
        bench.show(*events, wait=5)
    active = held(bench, receiver)
    assert active[PENDING][1] is None
    bench.restart()
    bench.advance(2)
    assert held(bench, receiver) == active


def test_an_event_that_is_scheduled_again_after_its_start(build: Build, receiver: Receiver) -> None:
    """Its alert ends, as with the rules, and no other begins."""
    bench = build(settings(receiver))
    bench.show(STARTED, wait=2)
    bench.show(REBOOT, wait=2)
    assert list(held(bench, receiver)) == [BEGUN]
    assert held(bench, receiver)[BEGUN][1] is not None


def test_retry_after_is_honoured(build: Build) -> None:
    """Not even a change is posted before that."""
    with http_receiver(429) as receiver:
        receiver.answer_headers["Retry-After"] = "30"
        bench = build(settings(receiver))
        bench.show(REBOOT, wait=2)
        receiver.mood = 200
        bench.show(STARTED, wait=20)
        assert receiver.requests == []
        bench.advance(15)
        assert names(posted(receiver)) == [BEGUN, PENDING]


def test_one_alertmanager_that_is_down_delays_no_other(build: Build) -> None:
    """Each gets all; the failing one is degraded, is tried again, and gets what is true by then."""
    with http_receiver() as one, http_receiver(503) as two:
        two.answer, before = b'"Bearer hunter2 is wrong"', "ann:hunter2@"
        bench = build(settings(one, two, before=before))
        bench.show(REBOOT, wait=2)
        assert names(posted(one)) == [PENDING]
        token = base64.b64encode(b"ann:hunter2").decode()
        assert one.requests[0].headers["authorization"] == f"Basic {token}"
        problem = 'target alertmanager-2 (http://127.0.0.1): status 503: "Bearer ... is wrong"'
        assert bench.api("problems") == [f"notifications_failing: {problem}"]
        views = {view["name"]: (view["delivers"], view["pending"]) for view in bench.api("targets")}
        assert views == {"alertmanager-1": (True, 0), "alertmanager-2": (False, 1)}
        assert bench.metric("notifications_pending", target="alertmanager") == 1
        assert "hunter2" not in "".join(
            bench.request(path)[1] for path in ("/", "/metrics", "/api/v1/status")
        )
        bench.show(STARTED, wait=2)
        two.mood = 200
        bench.advance(20)
        assert held(bench, two)[BEGUN] == held(bench, one)[BEGUN]
        assert held(bench, two)[BEGUN][1] is None
        assert bench.api("problems") == []


def test_the_delay_is_that_of_a_phase(build: Build, receiver: Receiver) -> None:
    """An alert that is posted again because its text or its labels have changed is no new delivery.

    With new labels it is another alert, and the one with the old labels ends.
    """
    bench = build(settings(receiver))
    bench.show(REBOOT, wait=300)
    bench.show(REBOOT | {"NotBefore": ""}, wait=5)
    assert posted(receiver)[-1]["annotations"]["summary"].endswith("time unknown")
    at = bench.clock.now()
    bench.reload(settings(receiver, more=", labels: {team: blue}"))
    bench.advance(5)
    alerts = held(bench, receiver)
    assert (alerts[PENDING][1], alerts[f"{PENDING}/blue"][1]) == (at, None)
    # The end of the first alert, and the beginning of the second.
    assert bench.metric("notifications_total", target="alertmanager", outcome="delivered") == 2
    bench.show(wait=5)
    assert bench.metric("notifications_total", target="alertmanager", outcome="delivered") == 3
    assert (bench.metric("notification_delay_seconds_sum", target="alertmanager") or 0) < 10


def test_a_removed_url_gets_nothing_more(build: Build) -> None:
    """Its alerts end by themselves; neither a problem nor a target of it is left."""
    with http_receiver() as kept, http_receiver() as removed:
        bench = build(settings(kept, removed))
        bench.show(REBOOT, wait=2)
        removed.mood = 503
        bench.show(STARTED, wait=2)
        assert len(bench.api("problems")) == 1
        bench.reload(settings(kept))
        assert bench.api("problems") == []
        removed.mood, count = 200, len(removed.requests)
        bench.show(wait=120)
        assert len(removed.requests) == count
        (ends,) = {one["endsAt"] for one in posted(removed)}
        assert datetime.fromisoformat(ends) - NOW < timedelta(minutes=16)
        assert held(bench, kept)[BEGUN][1] is not None
        bench.reload("")
        assert bench.api("targets") == []


def test_a_problem_of_a_removed_url_does_not_return(build: Build, receiver: Receiver) -> None:
    """A request that fails after the URL was removed reports nothing."""
    bench = build(settings(receiver))

    def refuse_after_reload(_: object) -> int:
        bench.app.reload()
        return 503

    bench.file.write_text("")
    receiver.mood = refuse_after_reload
    bench.show(REBOOT, wait=2)
    assert bench.api("targets") == []
    assert bench.api("problems") == []


def test_new_credentials_go_with_the_next_request(build: Build, receiver: Receiver) -> None:
    """They are used at once, and the alert goes on as it was."""
    bench = build(settings(receiver))
    bench.show(REBOOT, wait=2)
    before = held(bench, receiver)
    bench.reload(settings(receiver, before="ann:hunter2@"))
    bench.advance(2)
    assert ["authorization" in one.headers for one in receiver.requests] == [False, True]
    assert held(bench, receiver) == before


def test_a_condition_on_the_time_begins_and_ends_an_alert(build: Build, receiver: Receiver) -> None:
    """An alert is active while the event matches, also where time alone changes that."""
    bench = build(settings(receiver, more=", match: {max_notice: 14m, min_notice: 13m}"))
    bench.show(raw_event(), wait=50)
    assert posted(receiver) == []
    bench.advance(20)
    assert seconds(bench, receiver)[PENDING][1] is None
    bench.advance(60)
    assert 119 <= (seconds(bench, receiver)[PENDING][1] or 0) <= 126
    assert posted(receiver)[-1]["labels"]["event_id"] == FREEZE_ID


@pytest.mark.parametrize(("minutes", "words"), [(-16, "16m behind"), (2, "2m ahead of")])
def test_a_clock_that_is_off(build: Build, receiver: Receiver, minutes: int, words: str) -> None:
    """A clock that differs from Alertmanager's by over a minute is a problem, until it is right."""
    bench = build(settings(receiver))

    def dated(by: float) -> None:
        at = bench.clock.now() - timedelta(minutes=by)
        receiver.answer_headers["Date"] = format_datetime(at, usegmt=True)

    dated(minutes)
    bench.show(REBOOT, wait=2)
    (problem,) = bench.api("problems")
    where = "alertmanager (http://127.0.0.1)"
    assert problem.startswith(f"clock_skew: the clock of this VM is {words} that of {where}: alerts end ")
    assert bench.metric("degraded", reason="clock_skew") == 1
    dated(0.5)
    bench.show(STARTED, wait=2)
    assert bench.api("problems") == []
    dated(minutes)
    bench.show(wait=2)
    assert len(bench.api("problems")) == 1
    bench.reload("")
    assert bench.api("problems") == []


def test_a_redirect_is_a_failure(build: Build) -> None:
    """It is not followed, and the problem names the key to correct."""
    with http_receiver() as elsewhere, http_receiver(302) as receiver:
        receiver.answer_headers["Location"] = f"http://{elsewhere.authority}/"
        bench = build(settings(receiver))
        bench.show(REBOOT, wait=2)
        remedy = "redirects are not followed; correct alertmanager.urls"
        assert bench.api("problems")[0].endswith(f"status 302: {remedy}")
        assert elsewhere.requests == []
