"""A random world around the program on the bench, and the journal of the documents that it was served.

Everything follows from the seed alone, so a failure repeats.
"""

import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from exporter.model.jobs import HookOutcome
from exporter.model.messages import Delivery
from exporter.outputs.hooks.command import Command, CommandResult
from exporter.simulator import Fault
from tests.bench import Bench
from tests.bench.bench import SUCCEEDED
from tests.model.histories import NAME, Azure, Step

TARGETS = ("oncall", "backup")
_CONFIGURATION = f"""
imds: {{poll_interval: POLLs}}
instance: {{name: {NAME}}}
events: {{imminent: []}}
notifications:
  targets: [{{name: oncall, url: 'json://a.test'}}, {{name: backup, url: 'json://b.test'}}]
approval:
  mode: 'on'
  leader: any
  max_per_hour: 1000
  rules: [{{name: freezes, match: {{event_types: [Freeze]}}, action: approve}}]
hooks:
  - name: tell
    command: [tell]
    match: {{transitions: [scheduled, started, completed, cancelled, vanished]}}
tracing: {{enabled: true}}
"""
_FAULTS = ("error", "throttle", "garbage", "drop")
_FAILED = CommandResult(HookOutcome.FAILED, 1, 0.0, "exit status 1")
_DOWN = Delivery(delivered=False, reason="down")
_UP = Delivery(delivered=True)
# After this long without a fault everything has been tried again.
_QUIET_SECONDS = 700.0


class World:
    """The program, what it talks to, and what happens to them; `step` does one thing."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, seed: int | str) -> None:
        self.chance = random.Random(f"{seed} world")
        self.azure = Azure(random.Random(f"{seed} documents"))
        self.counts: Counter[str] = Counter()
        self.served: list[Step] = []
        self.failed_runs: list[Command] = []
        self._restarted = True
        self._patch = patch
        # These are reported between documents, too, at times that the journal does not have.
        patch.setattr("tests.model.life.THRESHOLDS", ())
        self._poll_interval = 15
        self.bench = Bench(folder, patch, self.configuration())
        self.bench.simulator.set_document(self.azure.answer())
        self.bench.command_result = self._run
        self._record()

    def configuration(self) -> str:
        return _CONFIGURATION.replace("POLL", str(self._poll_interval))

    def step(self) -> None:
        kinds: dict[Callable[[], None], float] = {
            self.change: 20,
            self.imds_fails: 2,
            self.target_fails: 2,
            self.traces_fail: 1,
            self.restart: 1,
            self.kill: 1,
            self.reload: 1,
            self.bad_reload: 0.5,
            self.stands_still: 1,
        }
        kind = self.chance.choices(list(kinds), list(kinds.values()))[0]
        kind()
        self.counts[kind.__name__] += 1
        self.bench.advance(self.chance.choice((1, 2, 5, 10, 35, 65)))

    def quiet(self) -> None:
        """Remove all faults, and wait until everything has been tried again."""
        self.bench.simulator.set_fault(None)
        self.bench.receiver.problem = ""
        for target in TARGETS:
            self.bench.sender(target).answer = lambda _: _UP
        self.bench.advance(_QUIET_SECONDS)

    def change(self) -> None:
        self.bench.simulator.set_document(self.azure.answer())

    def imds_fails(self) -> None:
        """Make IMDS fail until this is called again, or recover."""
        fault = self.chance.choice((None, *_FAULTS))
        self.bench.simulator.set_fault(fault and Fault(fault))  # type: ignore[arg-type]  # one of its modes

    def target_fails(self) -> None:
        answer = self.chance.choice((_UP, _DOWN))
        self.bench.sender(self.chance.choice(TARGETS)).answer = lambda _: answer

    def traces_fail(self) -> None:
        self.bench.receiver.problem = self.chance.choice(("", "down"))

    def restart(self) -> None:
        self._restarted = True
        self.bench.restart(after=self.chance.choice((0, 5, 300)))

    def kill(self) -> None:
        self._restarted = True
        self.bench.kill()

    def reload(self) -> None:
        self._poll_interval = self.chance.choice((5, 15, 60))
        assert self.bench.reload(self.configuration()) == 200

    def bad_reload(self) -> None:
        """Reload a configuration that is wrong, which changes nothing."""
        assert self.bench.reload("imds: {poll_interval: never}") == 500
        assert self.bench.reload(self.configuration()) == 200

    def stands_still(self) -> None:
        seconds = self.chance.choice((3, 31, 90_000))
        if self.chance.random() < 0.3:
            self.bench.clock.set_wall(self.bench.clock.now() + timedelta(seconds=-seconds))
        else:
            self.quiet()
            self.bench.clock.pass_seconds(seconds)

    def _run(self, command: Command) -> CommandResult:
        if self.chance.random() < 0.9:
            return SUCCEEDED
        self.failed_runs.append(command)
        return _FAILED

    def _record(self) -> None:
        simulator, serve = self.bench.simulator, self.bench.simulator.document

        def document(version: str) -> bytes:
            body = serve(version)
            self.served.append(Step(self.bench.clock.now(), body, NAME, self._restarted))
            self._restarted = False
            return body

        self._patch.setattr(simulator, "document", document)


def first_id(command: Command) -> str:
    """Return the first id of the event that a hook ran for, in small letters."""
    event: dict[str, Any] = json.loads(command.stdin)
    found: str = event["ids"][0]
    return found.lower()


def threads() -> int:
    """Return how many threads there are.

    Apart from those that end when their executor is collected, and from that of a sender process, which ends
    with it.
    """
    return sum(
        not thread.name.startswith(("render", "password", "limits")) for thread in threading.enumerate()
    )
