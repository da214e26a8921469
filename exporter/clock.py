"""The clock, which is passed to everything that depends on time, so that tests can replace it."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """The source of time."""

    def now(self) -> datetime:
        """Return the wall-clock time, aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Return the seconds of a clock that is never set; only differences are meaningful."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after this many seconds."""
        ...


class SystemClock:
    """The clocks of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
