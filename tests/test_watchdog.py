"""Tests of `exporter.watchdog`: what counts as hanging, and what a frozen VM does not make hang."""

import pytest

from exporter.watchdog import Watchdog
from tests.clocks import HandClock


class Checked:
    """A watchdog with a clock to drive by hand."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.watchdog = Watchdog(self.clock)

    def check_after(self, *steps: float) -> list[str | None]:
        """Advance the clock step by step, and return the result of each check."""
        found = []
        for step in steps:
            self.clock.pass_seconds(step)
            found.append(self.watchdog.check())
        return found


def test_work_that_hangs() -> None:
    """What has not ended within its limit is named at the next check, and at every one after it."""
    checked = Checked()
    with checked.watchdog.limit("the poll", 3.5):
        assert checked.check_after(1, 1, 1, 1, 1) == [None] * 3 + ["the poll has not ended within 3.5 s"] * 2


def test_work_that_ends() -> None:
    """What ends in time leaves nothing behind, however often it is done."""
    checked = Checked()
    for _ in range(5):
        with checked.watchdog.limit("the poll", 3.5):
            assert checked.check_after(1, 1, 1) == [None] * 3


def test_work_that_fails() -> None:
    """An error ends the work."""
    checked = Checked()
    with pytest.raises(RuntimeError), checked.watchdog.limit("the poll", 1):
        raise RuntimeError
    assert checked.check_after(2) == [None]


def test_several_at_once() -> None:
    """Each has its own limit; one that hangs is found beside one that does not."""
    checked = Checked()
    with checked.watchdog.limit("the poll", 60), checked.watchdog.limit("an approval", 1.5):
        assert checked.check_after(1, 1) == [None, "an approval has not ended within 1.5 s"]


def test_frozen_vm() -> None:
    """A clock that jumps, as after a freeze of the VM, takes at most 2 s from what was under way."""
    checked = Checked()
    with checked.watchdog.limit("the poll", 10):
        assert checked.check_after(1, 3600, 1, 86_400, 1) == [None] * 5
        assert checked.check_after(1, 1, 1.5) == [None, None, "the poll has not ended within 10 s"]


def test_who_always_has_something_under_way() -> None:
    """Each call replaces what was expected before; one that does not come is found."""
    checked = Checked()
    for _ in range(3):
        checked.watchdog.expect("poller", "the poll", 3.5)
        assert checked.check_after(1, 1, 1) == [None] * 3
        checked.watchdog.expect("poller", "the pause", 1.5)
        assert checked.check_after(1) == [None]
    assert checked.check_after(1) == ["the pause has not ended within 1.5 s"]
