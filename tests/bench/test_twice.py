"""Everything happens twice, with quiet time between: what works once may have stopped working after it."""

from typing import Any

from exporter.model.messages import Delivery
from tests.bench import Build
from tests.builders import FREEZE_ID, REBOOT_ID, raw_event

QUIET = 150.0
IDS = (FREEZE_ID, REBOOT_ID)
ONCALL = "notifications: {targets: [{name: oncall, url: 'json://receiver.test'}]}\n"
ALL = f"""{ONCALL}
approval: {{mode: 'on', rules: [{{name: all, action: approve}}]}}
hooks: [{{name: drain, command: [drain], match: {{transitions: [scheduled]}}}}]
tracing: {{enabled: true}}
"""


def events(**fields: Any) -> list[dict[str, Any]]:
    """Return two Freezes of this VM that are scheduled for long after."""
    not_before = "Fri, 06 Mar 2026 22:00:00 GMT"
    return [raw_event(EventId=event_id, NotBefore=not_before, **fields) for event_id in IDS]


def test_two_events(build: Build) -> None:
    """Each is seen, told, approved, acted on and traced, from its first document to its end.

    Target and receiver are down for the first one.
    """
    bench = build(ALL)
    bench.sender().answer = lambda _: Delivery(delivered=False, reason="down")
    bench.receiver.problem = "down"
    for number, event in enumerate(events(), 1):
        bench.show(event, wait=30)
        assert [one["id"] for one in bench.api("current")] == [event["EventId"]]
        assert bench.approved == list(IDS[:number])
        assert bool(bench.api("problems")) is (number == 1)
        bench.show(event | {"EventStatus": "Started", "NotBefore": ""}, wait=10)
        bench.show(wait=30)
        bench.sender().answer = lambda _: Delivery(delivered=True)
        bench.receiver.problem = ""
        bench.advance(QUIET)
        assert (bench.api("current"), bench.api("past")[0]["outcome"], bench.api("problems")) == (
            [],
            "completed",
            [],
        )
        for transition in ("scheduled", "approved", "completed"):
            assert bench.metric("transitions_total", transition=transition) == number
        assert bench.metric("impact_seconds_count") == number
        assert [command.environment["EVENT_ID"] for command in bench.commands] == list(IDS[:number])
        assert bench.metric("hooks_total", hook="drain", outcome="succeeded") == number
        roots = [span for span in bench.receiver.spans if not span.parent_id]
        assert [span.attributes["azure.scheduled_event.id"] for span in roots] == list(IDS[:number])
        ended = [one.incident for one in bench.sent() if "completed" in one.title]
        assert ended == [f"{event_id}/WestNO_0" for event_id in IDS[:number]]
        assert bench.metric("notifications_pending") == 0
    # After the outage of the target the newest message of the first event stands for two others.
    assert (bench.metric("notifications_total", outcome="delivered"), len(bench.sent())) == (8, 6)
    assert bench.metric("approvals_total", rule="all", outcome="approved") == 2


def test_two_reloads(build: Build) -> None:
    """Each takes effect, and a mistake between them changes nothing."""
    bench = build()
    first, second = events()
    assert bench.reload(ONCALL) == 200
    bench.show(first, wait=QUIET)
    assert len(bench.sent()) == 1
    assert bench.reload("nonsense: true") == 500
    assert bench.metric("config_last_reload_successful") == 0
    bench.advance(QUIET)
    assert bench.reload(ONCALL.replace("oncall", "backup")) == 200
    assert bench.metric("config_last_reload_successful") == 1
    bench.show(first, second, wait=QUIET)
    assert (len(bench.sent()), len(bench.sent("backup"))) == (1, 1)


def test_a_reload_shows_no_secret(build: Build) -> None:
    """Of an address that Apprise does not take, the API has scheme and reason alone."""
    bench = build(ONCALL, real_senders=True)
    assert bench.reload(ONCALL.replace("json://receiver.test", "slack://canary")) == 500
    (problem,) = bench.api("problems")
    assert "does not accept this slack:// URL: {token_b} is missing" in problem
    assert "canary" not in problem


def test_two_outages(build: Build) -> None:
    """Each is reported when it has lasted for `notifications.watch.after`, and when it is over."""
    bench = build(ONCALL)
    for number in (1, 2):
        bench.advance(QUIET)
        bench.outage(600)
        assert bench.metric("up") == 0
        assert len(bench.sent()) == 2 * number - 1
        bench.advance(60)
        assert bench.metric("up") == 1
        assert ["Blind" in one.title for one in bench.sent()] == [True, False] * number
