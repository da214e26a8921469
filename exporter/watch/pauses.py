"""Noticing that the VM stood still: a thread that sleeps, and looks at how long it slept by two clocks.

It runs only while somebody asks for it, which is while an event is Started for this VM.

What it can tell: for how long this process did not run although it should have, where both the monotonic
clock and the wall clock say so. A pause of the VM shows like that if the guest's clocks go on during it.

What it cannot tell:

- A pause during which the guest's clocks stand still too. Azure's documentation of time synchronisation
  says that after a pause of 28 seconds the VM's clock is 28 seconds behind until the host's time service
  mends it (https://learn.microsoft.com/azure/virtual-machines/linux/time-sync); Hyper-V's reference
  counter, from which a guest may derive its clocks, counts only while not all virtual processors are
  suspended (Hypervisor Top-Level Functional Specification). Such a pause leaves no trace in the monotonic
  clock, but a step forward of the wall clock afterwards, which `set_forward` finds. NTP and administrators
  make such steps too; and a time service that mends the clock little by little makes none.
- Why this process stood still. SIGSTOP, a frozen cgroup, a debugger, starvation by other processes or by
  another thread of this one, a CPU quota, a host that gives the VM no CPU, and memory that has to be read
  back from a slow disk look the same.
- Whether it was one pause or several in quick succession: what falls into one sleep is one.
- A pause below `LEAST_SECONDS`. And each seems up to `INTERVAL_SECONDS` shorter than it was, as the sleep
  that it fell into was not over when it began.

A step of the wall clock alone is not a pause: one of the clocks has not overslept. Where it is set back
during a pause, that pause is missed. A suspended machine (which a VM on Azure is not) stops the monotonic
clock. CLOCK_BOOTTIME goes on then, is the same otherwise, and so would prove nothing more.
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

    The deltas are what the two clocks say of that sleep, in seconds; the wall clock's may be negative. The
    smaller counts: it needs both to make a pause.
    """
    over = min(monotonic_delta, wall_delta) - slept
    return over if over > LEAST_SECONDS else None


def set_forward(monotonic_delta: float, wall_delta: float) -> float | None:
    """Return the seconds by which the wall clock was set forward within a sleep; None where it was not.

    While an event is Started, this may be all that is seen of a pause that stopped the guest's clocks.
    """
    step = wall_delta - monotonic_delta
    return step if step > LEAST_SECONDS else None


class PauseWatcher:
    """Calls ``on_pause`` with the seconds of each pause, and ``on_step`` with those of each step forward.

    Both are called on the watcher's thread; what they raise is logged. The last call may come up to
    `INTERVAL_SECONDS` after the end of the watch, for a pause that was before it.
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
        """Begin or end the watch; after `stop` nothing begins."""
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
    """Attributes what a `PauseWatcher` notices to the events that were under way then."""

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
