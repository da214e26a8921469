import logging

import pytest

from exporter.model.jobs import CommandResult, HookOutcome
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
    failed = CommandResult(HookOutcome.FAILED, 3, 0.0, "exit status 3")
    bench.command_result = lambda command: failed if command.argv == ("b",) else SUCCEEDED
    bench.show(raw_event())
    bench.show(raw_event(EventStatus="Started", NotBefore=""), wait=10)
    bench.restart()
    bench.advance(10)
    assert ran(bench) == [("b", "scheduled"), ("a", "scheduled"), ("b", "started"), ("a", "started")]
    ended = [vars(record) for record in caplog.records if record.getMessage() == "hook ended"]
    assert [(one["hook"], one["reason"]) for one in ended[:2]] == [("b", "exit status 3"), ("a", "")]
    told = [one["transition"] for one in bench.api("current")[0]["transitions"]]
    assert told.count("hook_failed") == 2


def test_a_hook_that_is_removed(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """What waits for a hook that is configured no more is forgotten, with a word."""
    bench = build(HOOKS)
    leave(bench)
    bench.restart(HOOKS.replace("name: b", "name: other"))
    assert ran(bench) == [("a", "scheduled")]
    assert "pending hook is no longer configured" in caplog.text


def test_what_cannot_be_read_is_left_out(build: Build) -> None:
    """A damaged row holds up no other."""
    bench = build(HOOKS)
    leave(bench)
    bench.app.stop()
    alter(bench.state, "UPDATE entries SET value = '{' WHERE kind = 'hook' AND key LIKE '%\"b\"%'")
    bench.start()
    assert ran(bench) == [("a", "scheduled")]
