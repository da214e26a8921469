"""Tests of `exporter.retry`: when a target is tried again."""

from hypothesis import given
from hypothesis import strategies as st

from exporter.retry import delay_after


def delays(count: int, *, chance: float, took: float = 0.0) -> list[float]:
    """Return the delays of an outage in which each try takes so long."""
    found: list[float] = []
    elapsed = took
    for failures in range(1, count + 1):
        found.append(delay_after(failures, failing_for=elapsed, took=took, chance=chance))
        elapsed += found[-1] + took
    return found


def test_the_delay_doubles() -> None:
    """Soon at first, 20 s at most for two minutes, then up to five minutes."""
    assert delays(15, chance=0.0) == [1, 2, 4, 8, 16, 20, 20, 20, 20, 20, 300, 300, 300, 300, 300]


def test_chance_takes_up_to_half_off() -> None:
    """A fleet does not come back all at once."""
    assert delays(6, chance=1.0) == [1, 1, 2, 4, 8, 10]


@given(st.integers(1, 10**6), st.floats(0, 10**6), st.floats(0, 60), st.floats(0, 1))
def test_bounds(failures: int, failing_for: float, took: float, chance: float) -> None:
    """Never less than a second, never more than five minutes; early on, 20 s from try to try."""
    delay = delay_after(failures, failing_for=failing_for, took=took, chance=chance)
    assert 1 <= delay <= 300
    if failing_for < 120:
        assert delay <= max(1, 20 - took)
