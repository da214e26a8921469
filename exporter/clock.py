"""The clock, passed in wherever time matters, so that tests own it."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where the program gets its time from."""

    def now(self) -> datetime:
        """Return the wall-clock time, aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never jump; only differences mean anything."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        """Return the wall-clock time, aware and in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never jump; only differences mean anything."""
        return time.monotonic()
