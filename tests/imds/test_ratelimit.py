"""How often IMDS is asked: the limiter, and the pauses after failures."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import ImdsError, PollOutcome
from exporter.imds.client import ImdsClient, PollPauses, RateLimiter, asked_again
from tests.clocks import HandClock
from tests.http_server import answer, serving

INTERVALS = st.floats(0.0, 3600.0)
CHANCES = st.floats(0.0, 1.0)
# What IMDS asks to wait, in seconds.
ASKED = st.just(0.0) | st.floats(0.0, 300.0)


@given(st.lists(st.sampled_from((0.0, 0.1)) | st.floats(0.0, 2.0), max_size=40))
def test_limiter(gaps: list[float]) -> None:
    """Whenever requests are wanted, no 6 of them start within a second, and none waits without need."""
    clock = HandClock()
    limiter = RateLimiter(clock)
    sent: list[float] = []
    for gap in gaps:
        clock.pass_seconds(gap)
        earliest = max([clock.monotonic(), *(time + 1.05 for time in sent[-5:-4])])
        limiter.wait()
        sent.append(clock.monotonic())
        assert sent[-1] == pytest.approx(earliest, abs=1e-6)


@given(INTERVALS, st.lists(st.tuples(st.booleans(), st.floats(0.0, 150.0), CHANCES, ASKED), max_size=60))
def test_pauses(interval: float, polls: list[tuple[bool, float, float, float]]) -> None:
    """Whatever the polls do, every pause keeps its bounds, and a success brings the interval back."""
    clock = HandClock()
    chances = iter([chance for success, _, chance, _ in polls if not success])
    pauses = PollPauses(interval, clock=clock, chance=lambda: next(chances))
    failing_since: float | None = None
    for success, took, _, asked in polls:
        clock.pass_seconds(took)
        error = None if success else ImdsError(PollOutcome.THROTTLED, "no", retry_after=asked)
        pause = pauses.after(error, took)
        if success:
            failing_since = None
            assert pause == max(interval - took, 0.2)
        else:
            failing_since = clock.monotonic() if failing_since is None else failing_since
            longest = 10.0 if clock.monotonic() - failing_since < 60 else 30.0
            assert min(max(interval, 0.2), longest) <= pause <= max(longest, asked)
            assert pause >= asked
        clock.pass_seconds(pause)


@pytest.mark.parametrize(("seconds", "waited"), [(5.0, 5.0), (0.5, 1.05), (60.0, None)])
def test_commands_wait_as_long_as_imds_asks(seconds: float, waited: float | None) -> None:
    """They observe up to 10 s; a longer pause is left to the person, who gets the error at once."""
    clock, left = HandClock(), [ImdsError(PollOutcome.THROTTLED, "no", 429, retry_after=seconds)]
    began = clock.monotonic()

    def request() -> None:
        if left:
            raise left.pop()

    with pytest.raises(ImdsError) if waited is None else contextlib.nullcontext():
        asked_again(request, clock)
    assert clock.monotonic() - began == pytest.approx(waited or 0.0)


def test_every_request_counts() -> None:
    """Requests of all kinds, failed ones included, keep to 5 a second together, on one connection."""
    clock = HandClock()
    began = clock.monotonic()
    replies = [answer(b"{}"), answer(b"no", "500 Oops"), answer(b"busy", "429 Slow down")]
    with serving(lambda c, _: c.send(replies[len(server.requests) % 3])) as server:
        client = ImdsClient(server.url, clock=clock)
        for _ in range(4):
            for call in (client.fetch, client.instance, lambda: client.approve("a")):
                with contextlib.suppress(ImdsError):
                    call()
        client.close()
    assert (server.connections, len(server.requests)) == (1, 12)
    assert clock.monotonic() - began == pytest.approx(2 * 1.05)
