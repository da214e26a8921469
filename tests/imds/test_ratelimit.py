"""How often IMDS is asked: the limiter, and the pauses after failures."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import ImdsError
from exporter.imds.client import ImdsClient, PollPauses, RateLimiter
from tests.clocks import HandClock
from tests.http_server import answer, serving

INTERVALS = st.floats(0.0, 3600.0)
CHANCES = st.floats(0.0, 1.0)


@given(st.lists(st.sampled_from((0.0, 0.1)) | st.floats(0.0, 2.0), max_size=40))
def test_limiter(gaps: list[float]) -> None:
    """Whenever requests are wanted, no 6 of them start within a second, and a first 5 never wait."""
    clock = HandClock()
    limiter = RateLimiter(clock)
    sent = []
    for number, gap in enumerate(gaps):
        clock.pass_seconds(gap)
        wanted = clock.monotonic()
        limiter.wait()
        sent.append(clock.monotonic())
        assert number >= 5 or sent[-1] == wanted
    assert all(later - earlier > 1.0 for earlier, later in zip(sent, sent[5:], strict=False))


@given(INTERVALS, st.lists(st.tuples(st.booleans(), st.floats(0.0, 150.0), CHANCES), max_size=60))
def test_pauses(interval: float, polls: list[tuple[bool, float, float]]) -> None:
    """Whatever the polls do, every pause keeps its bounds, and a success brings the interval back."""
    clock = HandClock()
    chances = iter([chance for success, _, chance in polls if not success])
    pauses = PollPauses(interval, clock=clock, chance=lambda: next(chances))
    failing_since: float | None = None
    for success, took, _ in polls:
        clock.pass_seconds(took)
        pause = pauses.after(success, took)
        if success:
            failing_since = None
            assert pause == max(interval - took, 0.2)
        else:
            failing_since = clock.monotonic() if failing_since is None else failing_since
            longest = 10.0 if clock.monotonic() - failing_since < 60 else 30.0
            assert min(max(interval, 0.2), longest) <= pause <= longest
        clock.pass_seconds(pause)


def test_every_request_counts() -> None:
    """Requests of all kinds, failed ones included, keep to 5 a second together."""
    clock = HandClock()
    began = clock.monotonic()
    replies = [answer(b"{}"), answer(b"", "500 Oops"), answer(b"", "429 Slow down")]
    with serving(lambda c, _: c.send(replies[len(server.requests) % 3])) as server:
        client = ImdsClient(server.url, clock=clock, limiter=RateLimiter(clock))
        for _ in range(4):
            for call in (client.fetch, client.instance, lambda: client.approve(["a"])):
                with contextlib.suppress(ImdsError):
                    call()
        client.close()
    assert len(server.requests) == 12
    assert clock.monotonic() - began == pytest.approx(2 * 1.05)
