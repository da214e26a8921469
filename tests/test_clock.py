"""Moments, which tell how long ago something was without the wall clock."""

import subprocess
import sys

import pytest

from exporter.clock import Clock, Moment, SystemClock, moment, seconds_since
from tests.clocks import HandClock


def test_only_time_of_the_same_boot_is_certain() -> None:
    """The wall clock does not matter; another boot, a time ahead and no time at all tell nothing."""
    clock = HandClock()
    past = moment(clock)
    clock.pass_seconds(60)
    clock.set_wall(clock.now().replace(year=2030))
    assert seconds_since(past, clock) == 60
    assert seconds_since(Moment(clock.boot, past.seconds + 61), clock) is None
    assert seconds_since(None, clock) is None
    clock.reboot()
    assert seconds_since(past, clock) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells its boot to every process")
def test_a_later_process_of_the_same_boot_knows_it() -> None:
    """What one process dates, the next one counts from, on the clock of the machine."""
    code = "from exporter.clock import *; now = moment(SystemClock()); print(now.boot, now.seconds)"
    before = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    boot, seconds = before.stdout.split()
    clock: Clock = SystemClock()
    ago = seconds_since(Moment(boot, float(seconds)), clock)
    assert ago is not None
    assert 0 <= ago < 60
