"""The clock, which is passed to everything that depends on time, so that tests can replace it.

The wall clock may be set at any time, also between two processes. What must not come early because of that is
dated by a `Moment`.
"""

import functools
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

HOUR = 3600.0


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the wall-clock time, aware and in UTC."""

    def monotonic(self) -> float:
        """Return the seconds of a clock that is never set; only differences are meaningful."""

    @property
    def speed(self) -> float:
        """Return how many seconds of `now` pass in one of `monotonic`: 1 except in a demo."""

    @property
    def boot(self) -> str:
        """Return the id of the boot: the monotonic clocks of processes with the same id agree."""

    def sleep(self, seconds: float) -> None:
        """Return after this many seconds."""


class Moment(msgspec.Struct, frozen=True):
    """A time that later processes of the same boot can date, whatever happens to the wall clock."""

    boot: str  # its id
    seconds: float  # of its monotonic clock


def moment(clock: Clock) -> Moment:
    return Moment(clock.boot, clock.monotonic())


def seconds_since(past: Moment | None, clock: Clock) -> float | None:
    """Return the seconds since a moment; None if that is not known, as it is not of this boot."""
    if past is None or past.boot != clock.boot:
        return None
    seconds = clock.monotonic() - past.seconds
    return seconds if seconds >= 0 else None


def renewed(past: Moment | None, clock: Clock) -> Moment:
    """Return a moment; now instead of one that cannot be dated, so that what waits from it begins anew."""
    return moment(clock) if past is None or seconds_since(past, clock) is None else past


def ahead(clock: Clock) -> float:
    """Return by how many seconds the wall clock is ahead of the monotonic one; it changes by steps only."""
    return clock.now().timestamp() - clock.monotonic() * clock.speed


class SystemClock:
    speed = 1.0

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    @property
    def boot(self) -> str:
        return _boot()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class FastClock:
    """A clock whose wall-clock time passes ``speed`` times as fast since ``began``; time limits stay real."""

    def __init__(self, clock: Clock, speed: float) -> None:
        self._clock = clock
        self.speed = speed
        self.began = clock.now()

    def now(self) -> datetime:
        return self.began + (self._clock.now() - self.began) * self.speed

    def monotonic(self) -> float:
        return self._clock.monotonic()

    @property
    def boot(self) -> str:
        return self._clock.boot

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


@functools.cache
def _boot() -> str:
    """Return Linux's id of this boot, or one of this process where there is none, as on Windows.

    Source: random(4), "/proc/sys/kernel/random/boot_id". Python's monotonic clock there is CLOCK_MONOTONIC,
    which counts from the boot.
    """
    try:
        return str(uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()))
    except (OSError, ValueError):
        return str(uuid.uuid4())
