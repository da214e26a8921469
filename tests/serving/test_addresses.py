"""Which addresses can be listened on, and what is said about the others."""

import errno
import os
import socket
import sys
from typing import Any

import pytest

from exporter.errors import ConfigurationError, ExporterError
from exporter.serving.addresses import listen
from exporter.serving.server import Server
from tests.serving.support import GET, answer, echo

_REMEDY = "use a form like :9843, 127.0.0.1:9843 or [::1]:9843"
_NO_PORT = f"is not a number from 0 to 65535; {_REMEDY}"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("9843", f"'9843' is not HOST:PORT; {_REMEDY}"),
        ("user:secret@host.example:80", f"the value is not HOST:PORT; {_REMEDY}"),
        ("::1:9843", f"an IPv6 address needs brackets; {_REMEDY}"),
        *((f":{port}", f"the port, '{port}', {_NO_PORT}") for port in ("http", "65536", "-1")),
        *(
            (f"{host}:0", f"the name of the host, {host!r}, cannot be resolved; correct it")
            for host in ("256.0.0.1", "a\0b", f"{'x' * 70}.example")
        ),
    ],
)
def test_a_bad_address_is_told(address: str, message: str) -> None:
    """The message names the flag, what is wrong, and the remedy; it does not repeat a URL or a password."""
    with pytest.raises(ConfigurationError) as caught:
        listen(address)
    assert str(caught.value) == f"--web.listen-address: {message}"


def test_an_address_in_use_is_told() -> None:
    """It is another kind of error: not the configuration is wrong, but the moment."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ExporterError) as caught:
            listen(address)
    assert not isinstance(caught.value, ConfigurationError)
    assert str(caught.value).startswith(f"cannot listen on {address}: address already in use")
    if sys.platform == "linux":
        assert f"(pid {os.getpid()}); stop it, or choose another port" in str(caught.value)


@pytest.mark.parametrize(
    ("address", "hosts", "url"),
    [
        ("127.0.0.1:0", ["127.0.0.1"], "http://127.0.0.1:"),
        ("localhost:0", ["127.0.0.1"], "http://127.0.0.1:"),
        ("[::1]:0", ["::1"], "http://[::1]:"),
        ("0.0.0.0:0", ["127.0.0.1"], "http://127.0.0.1:"),
        (":0", ["127.0.0.1", "::1"], "http://127.0.0.1:"),
        ("[::]:0", ["127.0.0.1", "::1"], "http://127.0.0.1:"),
    ],
)
def test_addresses_are_served(address: str, hosts: list[str], url: str) -> None:
    """No host means every address of both families; the URL is one that this machine can use."""
    server = Server(echo, listen(address))
    server.start()
    try:
        assert server.url == f"{url}{server.port}"
        for host in hosts:
            with socket.create_connection((host, server.port), timeout=30) as peer:
                peer.sendall(GET)
                assert answer(peer).startswith(b"HTTP/1.1 200")
    finally:
        server.stop(2.0)


def test_ipv4_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a name has addresses of both families, the first IPv4 address is used."""
    hosts = ((socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.0.0.2"))
    found = [(family, socket.SOCK_STREAM, 0, "", (host, 0)) for family, host in hosts]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with listen("both.example:0") as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("number", [None, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
def test_without_ipv6_there_is_ipv4(monkeypatch: pytest.MonkeyPatch, number: int | None) -> None:
    """On a machine without IPv6, or where it is disabled, the default address still works."""
    create = socket.create_server

    def of_ipv4(*args: Any, family: int = socket.AF_INET, **options: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(number, "IPv6 is disabled")
        return create(*args, family=family, **options)

    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: number is not None)
    monkeypatch.setattr(socket, "create_server", of_ipv4)
    listener = listen(":0")
    with listener:
        assert listener.family == socket.AF_INET
