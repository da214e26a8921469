from datetime import UTC, datetime, timedelta

NOW = datetime(2026, 3, 4, 22, 0, tzinfo=UTC)


class HandClock:
    """A clock moved by hand. Wall clock, monotonic clock and boot can be moved apart."""

    speed = 1.0

    def __init__(self, now: datetime = NOW) -> None:
        self._now = now
        self._monotonic = 1000.0
        self.boot = "boot 1"

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        """Return seconds that never jump."""
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.pass_seconds(seconds)

    def pass_seconds(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def set_wall(self, now: datetime) -> None:
        """Set the wall clock alone, as an administrator or NTP does."""
        self._now = now

    def reboot(self, boot: str = "boot 2") -> None:
        """Change the boot: what the monotonic clock showed before it means nothing any more."""
        self.boot = boot
