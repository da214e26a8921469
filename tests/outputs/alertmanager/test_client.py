"""The client of Alertmanager's API, against answers that repeat secrets."""

import pytest

from exporter.config.addresses import Address
from exporter.outputs.alertmanager.client import AlertmanagerError, Client
from tests.clocks import HandClock
from tests.http_server import answer, serving, then_hang_up

TOKEN = f"CANARY-{'abcdefgh' * 20}"
HEAD = b"HTTP/1.1 502 Bad\r\n"


@pytest.mark.parametrize(
    ("echo", "message"),
    [
        (answer(f'"denied: Bearer {TOKEN}"'.encode(), "401 No"), 'status 401: "denied: Bearer ..."'),
        (answer(b" " * 990 + TOKEN.encode(), "502 Bad"), "status 502: ..."),
        (HEAD + b"Content-Length: 999\r\n\r\n" + TOKEN[:40].encode(), "status 502: ..."),
        (HEAD + f"Authorization Bearer {TOKEN}\r\n\r\n".encode(), "illegal header line: "),
        (HEAD + f"Content-Length: {TOKEN}\r\n\r\n".encode(), "bad Content-Length"),
        (HEAD + f"Transfer-Encoding: {TOKEN}\r\n\r\n".encode(), "Only Transfer-Encoding: "),
    ],
    ids=["text", "far away", "text that is cut", "head", "length", "encoding"],
)
def test_a_secret_that_is_repeated(echo: bytes, message: str) -> None:
    """An answer that repeats the request's headers shows no part of a secret."""
    with serving(then_hang_up(echo)) as server:
        client = Client(Address("alertmanager", server.url, headers={"X-Key": TOKEN}), HandClock())
        with pytest.raises(AlertmanagerError) as caught:
            client.look()
        client.close()
    assert str(caught.value).startswith(message)
    assert TOKEN[:10] not in str(caught.value)
