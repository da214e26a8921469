import logging

import pytest

from exporter.model.jobs import HookOutcome
from exporter.outputs.hooks.command import Command, CommandResult
from exporter.outputs.hooks.runner import MOST_AT_ONCE
from exporter.state.jobs import Jobs
from tests.bench import Bench, Build
from tests.bench.bench import SUCCEEDED
from tests.builders import raw_event
from tests.state_support import alter

HOOKS = "hooks: [{name: b, command: [b]}, {name: a, command: [a]}]"


def ran(bench: Bench) -> list[tuple[str, str]]:
    return [(command.argv[0], command.environment["EVENT_TRANSITION"]) for command in bench.commands]


def leave(bench: Bench) -> None:
    """Write down what is to run after the next start."""
    bench.loops.idle.add("hooks")
    bench.show(raw_event())
    bench.loops.idle.clear()


def test_hooks_of_an_event_run_in_order(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """Transition by transition, and within one in the order of the file, each once; a failure stops none."""
    caplog.set_level(logging.INFO)
    bench = build(HOOKS)
    failed = CommandResult(HookOutcome.FAILED, 3, 0.0, "exit status 3", output="2 pods left")
    bench.command_result = lambda command: failed if command.argv == ("b",) else SUCCEEDED
    bench.show(raw_event())
    bench.show(raw_event(EventStatus="Started", NotBefore=""), wait=10)
    bench.restart()
    bench.advance(10)
    assert ran(bench) == [("b", "scheduled"), ("a", "scheduled"), ("b", "started"), ("a", "started")]
    assert {command.environment["EVENT_ATTEMPT"] for command in bench.commands} == {"1"}
    ended = [vars(record) for record in caplog.records if record.getMessage() == "hook ended"]
    assert [(one["hook"], one["reason"]) for one in ended[:2]] == [("b", "exit status 3"), ("a", "")]
    told = [vars(record) for record in caplog.records if record.getMessage() == "transition"]
    details = [one["detail"] for one in told if one["transition"] == "hook_failed"]
    assert details == ["hook b failed: exit status 3; output: 2 pods left"] * 2


def test_hooks_for_failures_of_hooks(build: Build) -> None:
    """Only those run that name `hook_failed`: the others would run again for each hook that fails.

    Nothing is told of their own failures but by the counter, and so by an alert.
    """
    told = "{name: tell, command: [tell], match: {transitions: [hook_failed]}}"
    bench = build(f"hooks: [{{name: a, command: [a]}}, {told}]")
    bench.command_result = lambda _: CommandResult(HookOutcome.FAILED, 3, 0.0, "exit status 3")
    bench.show(raw_event(EventType="Reboot"), wait=5)
    assert ran(bench) == [("a", "scheduled"), ("tell", "hook_failed")]
    assert bench.metric("hook_failures_total", hook="a", severity="critical") == 1
    assert bench.metric("hook_failures_total", hook="tell", severity="warning") == 1


@pytest.mark.parametrize(("kind", "before"), [("Reboot", "critical"), ("Freeze", "warning")])
def test_failures_are_counted_with_their_severity(build: Build, kind: str, before: str) -> None:
    """It is that of `hook_failed` at the failure, once each, also of hooks for events of other VMs."""
    bench = build("hooks: [{name: a, command: [a], match: {target: any}}]")
    bench.command_result = lambda _: CommandResult(HookOutcome.TIMED_OUT, None, 0.0, "over 60 s")

    def failures(severity: str) -> float | None:
        return bench.metric("hook_failures_total", hook="a", severity=severity)

    bench.show(raw_event(EventType=kind, Resources=["WestNO_9"]), wait=5)
    assert failures(before) == 1
    bench.show(raw_event(EventType=kind, Resources=["WestNO_9"], EventStatus="Started", NotBefore=""), wait=5)
    assert (failures(before), failures("warning")) == ((2, 2) if before == "warning" else (1, 1))
    bench.restart()
    bench.advance(5)
    assert (failures("warning"), failures("critical")) == (0, 0)


def test_a_hook_that_is_removed(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """What waits for a hook that is configured no more is forgotten, with a word."""
    bench = build(HOOKS)
    leave(bench)
    bench.restart(HOOKS.replace("name: b", "name: other"))
    assert ran(bench) == [("a", "scheduled")]
    assert "pending hook is no longer configured" in caplog.text


def test_too_many_wait(
    build: Build, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that make room for newer ones are logged, and count as failed."""
    monkeypatch.setattr(Jobs, "most_bytes", 1500)
    bench = build(HOOKS)
    leave(bench)
    assert [bench.metric("hooks_total", hook=name, outcome="failed") for name in "ba"] == [1, 0]
    bench.restart()
    assert ran(bench) == [("a", "scheduled")]
    assert [record.getMessage() for record in caplog.records] == ["hook runs dropped: too many are waiting"]


def test_what_cannot_be_read_is_left_out(build: Build) -> None:
    """A damaged row holds up no other."""
    bench = build(HOOKS)
    leave(bench)
    bench.app.stop()
    alter(bench.state, "UPDATE entries SET value = '{' WHERE kind = 'hooks' AND key LIKE '%\"b\"%'")
    bench.start()
    assert ran(bench) == [("a", "scheduled")]


def test_only_so_many_run_at_once(build: Build) -> None:
    """More events wait their turn, and get it."""
    bench = build("hooks: [{name: a, command: [a]}]")
    running: list[str] = []
    most = 0

    def run(command: Command) -> CommandResult:
        nonlocal most
        running.append(command.environment["EVENT_ID"])
        most = max(most, len(running))
        # The others run meanwhile, as far as they may.
        bench.loops.settle()
        running.remove(command.environment["EVENT_ID"])
        return SUCCEEDED

    bench.command_result = run
    ids = {f"e{number:02}" for number in range(MOST_AT_ONCE + 3)}
    bench.show(*(raw_event(EventId=event_id) for event_id in ids))
    assert most == MOST_AT_ONCE
    assert sorted(command.environment["EVENT_ID"] for command in bench.commands) == sorted(ids)


def test_a_newer_update_replaces_one_that_waits(build: Build) -> None:
    """A hook runs for the event as it came and for its newest content; once that is forgotten, anew."""
    both = "match: {transitions: [scheduled, updated]}"
    bench = build(f"hooks: [{{name: b, command: [b]}}, {{name: a, command: [a], {both}}}]")

    def run(_: Command) -> CommandResult:
        for number in (2, 3, 4) if len(bench.commands) == 1 else ():
            bench.show(raw_event(DurationInSeconds=number), wait=61)
        return SUCCEEDED

    bench.command_result = run
    bench.show(raw_event(DurationInSeconds=1))
    bench.show()
    bench.restart(after=91 * 24 * 3600)
    bench.show(raw_event(DurationInSeconds=5))
    durations = [one.environment["EVENT_DURATION"] for one in bench.commands if one.argv == ("a",)]
    assert durations == ["1", "4", "5"]


def test_the_end_of_a_life_drops_what_has_not_begun(build: Build) -> None:
    """When an event is over, only what runs already and the hooks for its end are of use."""
    bench = build(HOOKS)

    def run(_: Command) -> CommandResult:
        if len(bench.commands) == 1:
            bench.show()
        return SUCCEEDED

    bench.command_result = run
    bench.show(raw_event())
    assert ran(bench) == [("b", "scheduled"), ("b", "cancelled"), ("a", "cancelled")]
