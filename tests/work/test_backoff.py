"""Tests of the pauses after failures."""

from hypothesis import given
from hypothesis import strategies as st

from exporter.work import Backoff
from tests.clocks import HandClock


def pauses(count: int, *, chance: float, took: float = 0.0) -> list[float]:
    """Return the pauses of an outage in which each attempt takes so long."""
    clock = HandClock()
    backoff = Backoff(clock, chance=lambda: chance)
    found = []
    for _ in range(count):
        clock.pass_seconds(took)
        found.append(backoff.failed(took))
        clock.pass_seconds(found[-1])
    return found


def test_the_pause_doubles() -> None:
    """Pauses grow to 20 s during the first two minutes, then to five minutes."""
    assert pauses(15, chance=0.0) == [1, 2, 4, 8, 16, 20, 20, 20, 20, 20, 300, 300, 300, 300, 300]


def test_chance_takes_up_to_half_off() -> None:
    """VMs that fail together do not come back together."""
    assert pauses(6, chance=1.0) == [1, 1, 2, 4, 8, 10]


def test_success_starts_over() -> None:
    """The first failure after a success is followed by the shortest pause."""
    backoff = Backoff(HandClock(), chance=lambda: 0.0)
    assert [backoff.failed(), backoff.failed()] == [1, 2]
    backoff.succeeded()
    assert backoff.failed() == 1


@given(
    st.lists(st.tuples(st.floats(0, 60), st.floats(0, 1)), min_size=1, max_size=40),
    st.floats(0.2, 3600),
    st.floats(10, 300),
)
def test_bounds(attempts: list[tuple[float, float]], first: float, longest: float) -> None:
    """Whatever attempts take, pauses keep their bounds, and early attempts their distance."""
    clock = HandClock()
    chances = iter([chance for _, chance in attempts])
    backoff = Backoff(clock, first=first, early_longest=10.0, longest=longest, chance=lambda: next(chances))
    since: float | None = None
    for took, _ in attempts:
        clock.pass_seconds(took)
        since = clock.monotonic() if since is None else since
        early = clock.monotonic() - since < 120
        pause = backoff.failed(took)
        bound = 10.0 if early else longest
        assert min(first, bound) <= pause <= bound
        assert not early or pause <= max(10.0 - took, min(first, bound))
        clock.pass_seconds(pause)
