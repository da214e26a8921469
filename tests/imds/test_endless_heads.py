"""Responses with an endless head: requests cannot abandon them, so the watchdog has to detect them."""

import contextlib
import threading

import pytest

from exporter.errors import ImdsError
from exporter.imds import ImdsClient
from exporter.work import Watchdog
from tests.clocks import HandClock
from tests.http_server import Respond, serving
from tests.imds.test_client_hostile import CHUNKED, OK, dripping, endless

TIMEOUT = 0.2
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize(
    "respond",
    [
        pytest.param(dripping(b"", OK * 1000), id="status line that drips"),
        pytest.param(dripping(OK, b"X: y\r\n" * 1000), id="headers that drip"),
        pytest.param(dripping(b"", CONTINUE * 1000), id="continues that drip"),
        pytest.param(dripping(CHUNKED + b"0\r\n", b"X: y\r\n" * 1000), id="trailers that drip"),
        pytest.param(endless(b"", CONTINUE), id="continues"),
        pytest.param(endless(CHUNKED + b"0\r\n", b"X: y\r\n"), id="trailers"),
    ],
)
def test_a_head_without_end_is_noticed(respond: Respond) -> None:
    """The request counts as hanging after its two timeouts and a margin; not before."""
    clock = HandClock()
    watchdog = Watchdog(clock)

    def fetch(client: ImdsClient) -> None:
        with contextlib.suppress(ImdsError):
            client.fetch()

    with serving(respond) as server:
        client = ImdsClient(
            server.url, timeout=TIMEOUT, first_timeout=TIMEOUT, clock=clock, watchdog=watchdog
        )
        thread = threading.Thread(target=fetch, args=(client,))
        thread.start()
        thread.join(5 * TIMEOUT)
        assert thread.is_alive()
        seconds = 0
        while (hanging := watchdog.check()) is None:
            clock.pass_seconds(1)
            seconds += 1
            assert seconds < 60
    thread.join(30)
    client.close()
    # Twice the timeout, and 30 s of margin.
    assert hanging == f"GET {server.url}/metadata/scheduledevents has not ended within 30.4 s"
    assert seconds == 31
    assert not thread.is_alive()
    assert watchdog.check() is None
