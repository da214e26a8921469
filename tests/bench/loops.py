"""All loops of the program in the thread of the test, by a clock that is moved by hand."""

import logging
import math
import threading
import time
from logging.handlers import BufferingHandler

import pytest

from exporter.work import Loop
from tests.clocks import HandClock

_MOST_TURNS = 100_000
# Sums of floating-point seconds differ by about so much.
_ROUNDING = 1e-6
# A thread that does one thing and ends; `Loop` makes all others.
_ONE_OFF = "check targets"


class HandLoops:
    """Calls the steps of every `Loop` that is started, in the order in which they are due.

    Those of `idle` names are neither started nor called.
    """

    def __init__(self, clock: HandClock, patch: pytest.MonkeyPatch) -> None:
        self._clock = clock
        # When each loop that was started is due, by the monotonic clock.
        self.due: dict[Loop, float] = {}
        self.idle: set[str] = set()
        # Those whose step is being called, and does something that calls others.
        self._busy: set[Loop] = set()
        # What loops log about exceptions that they did not expect.
        self._failures = BufferingHandler(_MOST_TURNS)
        patch.setattr(logging.getLogger("exporter.work"), "handlers", [self._failures])
        # Methods of this object would not get the loop.
        patch.setattr(Loop, "start", lambda loop: self._start(loop))  # noqa: PLW0108 - see above
        patch.setattr(Loop, "wake", lambda loop: self._wake(loop))  # noqa: PLW0108 - see above
        patch.setattr(Loop, "join", lambda loop, timeout: self._join(loop, timeout))  # noqa: PLW0108 - see above

    @property
    def errors(self) -> list[str]:
        """The exceptions that no loop expected."""
        found = (vars(record) for record in self._failures.buffer)
        return [repr(one["exc_info"][1]) for one in found if one["msg"] == "background work failed"]

    def settle(self) -> None:
        """Call all steps that are due, until none is."""
        for _ in range(_MOST_TURNS):
            _join_threads()
            ready = self._ready()
            if not ready:
                return
            for loop in ready:
                self._turn(loop)
        raise AssertionError(f"these do not come to rest: {[loop.name for loop in self._ready()]}")

    def turn(self, name: str) -> None:
        """Call the step of the loop of this name now."""
        for loop in [loop for loop in self.due if loop.name == name]:
            self._turn(loop)

    def advance(self, seconds: float) -> None:
        """Advance the clock, and call each step when it is due."""
        end = self._clock.monotonic() + seconds
        self.settle()
        while (due := min((due for _, due in self._waiting()), default=math.inf)) <= end:
            self._clock.pass_seconds(max(due - self._clock.monotonic(), 0.0))
            self.settle()
        self._clock.pass_seconds(max(end - self._clock.monotonic(), 0.0))

    def _ready(self) -> list[Loop]:
        now = self._clock.monotonic() + _ROUNDING
        return [loop for loop, due in self._waiting() if due <= now]

    def _waiting(self) -> list[tuple[Loop, float]]:
        busy = self._busy
        found = tuple(self.due.items())
        return [(loop, due) for loop, due in found if loop.name not in self.idle and loop not in busy]

    def _turn(self, loop: Loop) -> None:
        if loop.stopping:
            self.due.pop(loop, None)
            return
        self.due[loop] = math.inf
        self._busy.add(loop)
        delay = loop.turn()
        self._busy.discard(loop)
        if delay is not None and loop in self.due:
            # What is left by rounding would be due without any time passing, forever.
            later = max(delay, 2 * _ROUNDING) if delay else 0.0
            self.due[loop] = min(self.due[loop], self._clock.monotonic() + later)

    def _start(self, loop: Loop) -> None:
        if not loop.stopping and loop.name not in self.idle:
            self.due.setdefault(loop, self._clock.monotonic())

    def _wake(self, loop: Loop) -> None:
        if loop in self.due:
            self.due[loop] = self._clock.monotonic()

    def _join(self, loop: Loop, timeout: float) -> bool:
        # Of the 10 s that a stop may take; time stands still meanwhile.
        assert 0 <= timeout < 10
        if loop in self._ready():
            self._turn(loop)
        self.due.pop(loop, None)
        assert loop.stopping
        return True


def _join_threads() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith(_ONE_OFF):
            while True:
                try:
                    thread.join()
                    break
                except RuntimeError:  # another thread is starting it
                    time.sleep(0.001)
