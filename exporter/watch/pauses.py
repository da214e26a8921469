"""Detection of pauses of the VM: a thread sleeps and measures with two clocks how long it slept.

It runs only while an event is Started for this VM.

It detects for how long this process did not run although it should have, if the monotonic clock and the wall
clock agree. A pause of the VM is visible in this way if the guest's clocks continue during it.

It cannot detect:

- A pause during which the guest's clocks stop, too. Azure's documentation of time synchronisation
  says that after a pause of 28 seconds the VM's clock is 28 seconds behind until the host's time service
  corrects it (https://learn.microsoft.com/azure/virtual-machines/linux/time-sync); Hyper-V's reference
  counter, from which a guest may derive its clocks, counts only while not all virtual processors are
  suspended (Hypervisor Top-Level Functional Specification). Such a pause is not visible in the monotonic
  clock, only as a step forward of the wall clock afterwards, which `set_forward` finds. NTP and
  administrators cause such steps, too, and a time service that corrects the clock gradually causes none.
- The reason why this process stopped. SIGSTOP, a frozen cgroup, a debugger, starvation by other processes or
  by another thread of this one, a CPU quota, a host that gives the VM no CPU, and memory that has to be read
  back from a slow disk look the same.
- Several pauses in quick succession: those within one sleep count as one.
- A pause below `LEAST_SECONDS`. Each is measured up to `INTERVAL_SECONDS` too short, because it
  begins before the end of a sleep.

A step of the wall clock alone is not a pause. If the wall clock is set back during a pause, that pause is
missed. CLOCK_BOOTTIME differs from the monotonic clock only while the machine is suspended, which VMs on
Azure are not, so it would not help.
"""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from exporter.clock import Clock
from exporter.model.jobs import Pause
from exporter.model.lifecycle import TrackedEvent
from exporter.model.views import Snapshot
from exporter.work import Loop

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 0.05
LEAST_SECONDS = 0.2


def oversleep(slept: float, monotonic_delta: float, wall_delta: float) -> float | None:
    """Return the seconds of a pause within a sleep that was to last ``slept`` seconds; None for no pause.

    The deltas are the duration of that sleep by each clock, in seconds; the wall clock's may be negative. The
    smaller one counts.
    """
    over = min(monotonic_delta, wall_delta) - slept
    return over if over > LEAST_SECONDS else None


def set_forward(monotonic_delta: float, wall_delta: float) -> float | None:
    """Return the seconds by which the wall clock was set forward within a sleep; None if it was not.

    While an event is Started, this may be the only sign of a pause that stopped the guest's clocks.
    """
    step = wall_delta - monotonic_delta
    return step if step > LEAST_SECONDS else None


class PauseWatcher:
    """Calls ``on_pause`` with the seconds of each pause, and ``on_step`` with those of each step forward.

    Both are called on the watcher's thread; their exceptions are logged. The last call may be up to
    `INTERVAL_SECONDS` after the end of the watch, for a pause before it.
    """

    def __init__(
        self,
        on_pause: Callable[[float], None],
        *,
        clock: Clock,
        on_step: Callable[[float], None] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._on_pause = on_pause
        self._on_step = on_step
        self._clock = clock
        self._sleep = sleep
        self._active = False
        self._loop = Loop("pauses", self._step)

    def watch(self, active: bool) -> None:
        """Start or end the watch; it cannot be started after `stop`."""
        self._active = active
        if active:
            self._loop.start()
            self._loop.wake()

    def stop(self, timeout: float) -> bool:
        """End the watch for good, and return whether its thread ended within ``timeout`` seconds."""
        self._active = False
        self._loop.stop()
        return self._loop.join(timeout)

    def _step(self) -> float | None:
        if not self._active:
            return None
        monotonic, wall = self._clock.monotonic(), self._clock.now()
        self._sleep(INTERVAL_SECONDS)
        monotonic_delta = self._clock.monotonic() - monotonic
        wall_delta = (self._clock.now() - wall).total_seconds()
        # After a pause, the thread that ends the watch may run before this one: the pause still counts.
        _tell(self._on_pause, oversleep(INTERVAL_SECONDS, monotonic_delta, wall_delta))
        _tell(self._on_step, set_forward(monotonic_delta, wall_delta))
        return 0.0


def _tell(report: Callable[[float], None] | None, seconds: float | None) -> None:
    if report is None or seconds is None:
        return
    try:
        report(seconds)
    except Exception:
        log.exception("recording an observed pause failed")


class Interruptions:
    """Attributes the pauses found by a `PauseWatcher` to the events that were Started then."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        count: Callable[[str, float], None],
        clock: Clock,
        *,
        report: Callable[[Pause], None],
    ) -> None:
        """``count`` is called with an event's type and the seconds of a pause."""
        self._snapshot = snapshot
        self._count = count
        self._clock = clock
        self._report = report

    def paused(self, seconds: float) -> None:
        """Count a pause for every type of event that was Started, report it, and log it."""
        events = self._under_way(seconds)
        for event_type in sorted({tracked.event.event_type for tracked in events}):
            self._count(event_type, seconds)
        if events:
            self._report(Pause(tuple(tracked.key for tracked in events), seconds))
        log.info("pause", extra={"seconds": seconds, **_facts(events)})

    def set_forward(self, seconds: float) -> None:
        """Log that the wall clock was set forward during an event, the only trace of some pauses."""
        log.info("clock set forward", extra={"seconds": seconds, **_facts(self._under_way(seconds))})

    def _under_way(self, seconds: float) -> list[TrackedEvent]:
        # The poll after a pause may find the event gone before the pause is reported.
        return self._snapshot().under_way(since=self._clock.now() - timedelta(seconds=seconds + 1))


def _facts(events: Sequence[TrackedEvent]) -> dict[str, object]:
    return {
        "event_ids": [tracked.event.event_id for tracked in events],
        "event_types": [tracked.event.event_type for tracked in events],
        "announced_seconds": [tracked.event.duration_seconds for tracked in events],
    }
