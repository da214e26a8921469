"""Approvals on the bench: what is approved, what is waited for, and what is only shown."""

import logging
from datetime import timedelta

import pytest

from exporter.model.jobs import HookOutcome
from exporter.outputs.hooks.command import Command, CommandResult
from tests.bench import Build
from tests.bench.bench import SUCCEEDED
from tests.builders import FREEZE_ID, raw_event
from tests.outputs.approval.support import DRAIN, approving, state, states, transitions

FAILED = CommandResult(HookOutcome.FAILED, 1, 0.0, "exit status 1")


@pytest.mark.parametrize("interval", ["200ms", "1h"])
def test_a_delay_ends_with_a_fresh_document(build: Build, interval: str) -> None:
    """Whatever the interval, the document is fetched right before the request; it has the id's spelling."""
    bench = build(approving({"delay": "60s"}))
    bench.show(raw_event(), wait=2)
    bench.reload(approving({"delay": "60s"}, imds={"poll_interval": interval}))
    bench.advance(56)
    bench.simulator.set_document({"DocumentIncarnation": 2, "Events": [raw_event(EventId=FREEZE_ID.lower())]})
    assert (state(bench)[0], bench.posts) == ("waiting", [])
    bench.advance(4)
    ((at, event_id),) = bench.posts
    assert event_id == FREEZE_ID.lower()
    assert bench.asked[bench.asked.index((at, event_id)) - 1] == (at, "")


def test_required_hooks(build: Build) -> None:
    """An event waits for its hook, and is approved at once when it has succeeded."""
    bench = build(approving({"require_hooks": ["drain"]}, hooks=[DRAIN]))
    ended = []

    def drain(_: Command) -> CommandResult:
        bench.clock.pass_seconds(3)
        ended.append((bench.clock.monotonic(), state(bench)))
        return SUCCEEDED

    bench.command_result = drain
    bench.show(raw_event(), wait=10)
    assert [post for post, _ in bench.posts] == [at for at, _ in ended]
    assert [shown for _, shown in ended] == [("waiting", "the hook drain has not ended yet")]


def test_a_required_hook_that_runs_again_for_its_failure(build: Build) -> None:
    """A hook that failed holds the approval, also if it succeeds when it runs for `hook_failed`."""
    bench = build(approving({"require_hooks": ["drain"]}, hooks=[DRAIN]))
    bench.command_result = lambda _: SUCCEEDED if len(bench.commands) > 1 else FAILED
    bench.show(raw_event(), wait=5)
    bench.restart()
    bench.advance(5)
    assert len(bench.commands) == 2
    assert transitions(bench) == ["scheduled", "hook_failed"]
    assert (state(bench), bench.posts) == (("hold", "the hook drain failed"), [])


@pytest.mark.parametrize("transition", ["scheduled", "imminent", "updated", "cancelled"])
def test_hooks_that_a_document_brought_about_come_first(build: Build, transition: str) -> None:
    """An event is approved only after all its hooks have ended, however they end, also of its former life."""
    prepare = {"name": "prepare", "command": ["true"], "match": {"transitions": [transition]}}
    bench = build(approving({"delay": "10s"}, hooks=[prepare], events={"imminent": ["15m"]}))
    shown = []
    later = {"NotBefore": (bench.clock.now() + timedelta(minutes=15, seconds=5)).isoformat()}
    newer = later | {"Description": "another host"}

    def run(_: Command) -> CommandResult:
        bench.show(raw_event(**newer), wait=20)
        shown.append((state(bench), len(bench.posts)))
        return FAILED

    bench.command_result = run
    bench.show(raw_event(**later))
    if transition == "cancelled":
        bench.show()
    else:
        bench.show(raw_event(**newer))
    bench.advance(10)
    assert shown == [(("waiting", "the hook prepare has not ended yet"), 0)]
    assert bench.approved == [FREEZE_ID]


def test_hooks_that_reports_brought_about_are_not_waited_for(build: Build) -> None:
    """A hook for the failure of another one, which may take long, does not hold what does not require it."""
    slow = {"name": "slow", "command": ["true"], "match": {"transitions": ["hook_failed"]}}
    bench = build(approving(hooks=[DRAIN | {"match": {"transitions": ["scheduled"]}}, slow]))
    shown = []

    def run(command: Command) -> CommandResult:
        if command.environment["EVENT_TRANSITION"] == "scheduled":
            return FAILED
        bench.clock.pass_seconds(20)
        bench.loops.turn("poller")
        bench.loops.turn("approver")
        shown.append(bench.approved)
        return SUCCEEDED

    bench.command_result = run
    bench.show(raw_event(), wait=60)
    assert shown == [[FREEZE_ID]]


def test_a_new_life_needs_its_own_hooks_and_delay(build: Build) -> None:
    """Approvals and delays before an event ended do not affect the event that returned."""
    bench = build(approving())
    bench.show(raw_event(), wait=60)
    bench.show()
    never = DRAIN | {"match": {"transitions": ["vanished"]}}
    bench.reload(approving({"delay": "60s", "require_hooks": ["drain"]}, hooks=[never]))
    bench.show(raw_event())
    assert state(bench)[0] == "waiting"
    bench.advance(60)
    assert state(bench) == ("waiting", "the hook drain did not run for it")
    assert bench.approved == [FREEZE_ID]


@pytest.mark.parametrize("step", [timedelta(hours=5), timedelta(days=-3)])
def test_a_step_of_the_clock_changes_no_delay(build: Build, step: timedelta) -> None:
    """Delays and the hourly limit count by the monotonic clock while the process lives."""
    later = {"NotBefore": "Thu, 04 Mar 2027 22:15:00 GMT"}
    bench = build(approving({"delay": "60s"}, approval={"max_per_hour": 1}))
    bench.show(raw_event(**later), wait=30)
    bench.clock.set_wall(bench.clock.now() + step)
    bench.advance(28)
    assert (state(bench)[0], bench.posts) == ("waiting", [])
    bench.advance(4)
    assert bench.approved == [FREEZE_ID]
    bench.reload(approving(approval={"max_per_hour": 1}))
    bench.clock.set_wall(bench.clock.now() + step)
    bench.show(raw_event(EventId="b", **later), wait=5)
    assert states(bench)["b"] == "limited"


@pytest.mark.parametrize("delay", ["0s", "60s"])
def test_a_dry_run_sends_nothing(build: Build, caplog: pytest.LogCaptureFixture, delay: str) -> None:
    """It is counted once, when the delay is over, and shown; nothing is sent and there is no transition."""
    caplog.set_level(logging.INFO)
    bench = build(approving({"delay": delay}, approval={"mode": "dry_run"}))
    bench.show(raw_event(), wait=59)
    assert bench.metric("approvals_total", outcome="dry_run") == (delay == "0s")
    bench.advance(10)
    assert bench.metric("approvals_total", outcome="dry_run") == 1
    assert state(bench) == ("dry_run", "it would be approved now; approval.mode is dry_run")
    assert (bench.posts, transitions(bench)) == ([], ["scheduled"])
    logged = [vars(record)["state"] for record in caplog.records if record.getMessage() == "approval"]
    assert logged == (["dry_run"] if delay == "0s" else ["waiting", "dry_run"])
