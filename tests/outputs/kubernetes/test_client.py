"""The client of the API server, against one whose answers never end or are none."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.outputs.kubernetes.client import Client, KubernetesError, Pod
from tests.http_server import Connection, Request, Respond, answer, then_hang_up
from tests.outputs.kubernetes.api import TOKEN, cluster_of

OK = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def client(folder: Path, respond: Respond) -> Iterator[Client]:
    with cluster_of(respond, folder) as variables:
        yield (found := Client(str(folder), variables))
        found.close()


@pytest.mark.parametrize("drops", [OK + b"X: y\r\n" * 80, OK + b"Content-Length: 500\r\n\r\n" + b" " * 500])
def test_an_answer_that_drips(tmp_path: Path, drops: bytes) -> None:
    """It is given up at the timeout, whether the head or the body comes byte by byte."""
    whole = []

    def respond(connection: Connection, _: Request) -> None:
        connection.drip(drops)
        whole.append(not connection.stopping.is_set())

    with client(tmp_path, respond) as found:
        with pytest.raises(KubernetesError, match=r"^create pods/eviction: no answer within 0\.5 s$"):
            found.evict(Pod("default", "web", "it"), None, 0.5)
        assert not whole


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (299, b"{", "not a valid answer: Input data was truncated"),
        (200, b"[" * 100_000, "not a valid answer: "),
        (300, b'{"message": "elsewhere"}', "status 300: elsewhere"),
        (502, b"<p>Bad\ngateway \xff</p>", "status 502: <p>Bad gateway \ufffd</p>"),
        (403, b'{"message": "\xff"}', "status 403: forbidden: {"),
        (500, b"[" * 100_000, "status 500: [["),
    ],
)
def test_an_answer_that_is_none(tmp_path: Path, status: int, body: bytes, message: str) -> None:
    """Whatever comes is an error of the call, with the status, or else what is wrong with the answer."""
    with client(tmp_path, then_hang_up(answer(body, f"{status} Status"))) as found:
        with pytest.raises(KubernetesError) as caught:
            found.node("pool-0")
        assert str(caught.value).startswith(f"get nodes: {message}")
        assert caught.value.status == (status if status >= 300 else None)


@pytest.mark.parametrize(
    ("echo", "message"),
    [
        (answer(b'{"message": "denied: Bearer %s"}', "401 Status"), "status 401: denied: Bearer ..."),
        (answer(b"Authorization: Bearer %s", "502 Status"), "status 502: Authorization: Bearer ..."),
        (answer(b" " * 990 + b"Bearer %s", "502 Status"), "status 502: Bearer ..."),
        (OK + b"Authorization Bearer " + b"x" * 60 + b" %s\r\n\r\n", "illegal header line: "),
    ],
    ids=["message", "text", "text that is cut", "head"],
)
def test_a_token_that_is_repeated(tmp_path: Path, echo: bytes, message: str) -> None:
    """An answer that repeats the request's headers shows the token nowhere, nor a part of it."""
    token = f"{TOKEN}-{'abcdefgh' * 20}"
    echo = echo.replace(b"%s", token.encode())
    echo = re.sub(rb"(Content-Length:) \d+", b"\\1 %d" % len(echo.partition(b"\r\n\r\n")[2]), echo)
    with client(tmp_path, then_hang_up(echo)) as found:
        (tmp_path / "token").write_text(token)
        with pytest.raises(KubernetesError) as caught:
            found.node("pool-0")
    assert str(caught.value).startswith(f"get nodes: {message}")
    assert TOKEN not in str(caught.value)
