"""Basic authentication and the rate limit."""

import ast
import asyncio
import base64
import inspect
import json
import socket
import threading
from collections.abc import Iterator, Mapping

import bcrypt
import pytest

from exporter.timefmt import Duration
from exporter.web import auth
from exporter.web.app import WebApp
from exporter.web.auth import Passwords
from exporter.web.settings import RateLimit, WebSettings
from tests.clocks import HandClock
from tests.web.support import Answer, ask, call, served, site, snapshot

USERS = {
    "alice": bcrypt.hashpw(b"wonder:land", bcrypt.gensalt(4)),
    "b\u00f6b": bcrypt.hashpw("p\u00e4ss".encode(), bcrypt.gensalt(4)),
    "long": bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)),
}


def _header(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def _protected() -> WebApp:
    return WebApp(site(snapshot(), settings=lambda: WebSettings(users=USERS), lifecycle_enabled=True))


async def _right(
    passwords: Passwords, name: str, password: bytes, users: Mapping[str, bytes] = USERS
) -> bool:
    """Check a password as a request does."""
    return passwords.remembers(users, name, password) or bool(await passwords.check(users, name, password))


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Note every password that is really checked."""
    seen: list[bytes] = []
    fits = auth._fits

    def noted(password: bytes, hashed: bytes) -> bool:
        seen.append(password)
        return fits(password, hashed)

    monkeypatch.setattr(auth, "_fits", noted)
    return seen


@pytest.mark.parametrize(
    "path", ["/", "/metrics", "/-/healthy", "/-/in-service", "/api/v1/events", "/nowhere", "/-/reload"]
)
def test_every_path_is_protected(path: str) -> None:
    """Without credentials nothing is disclosed, not even which paths exist, and nothing is reloaded."""
    answer = ask(_protected(), path, "POST" if path == "/-/reload" else "GET")
    assert (answer.status, answer.text) == (401, "401 Unauthorized\n")
    challenge = 'Basic realm="azure-scheduled-events-exporter", charset="UTF-8"'
    assert answer.headers["www-authenticate"] == challenge


@pytest.mark.parametrize(
    ("name", "password"),
    [("alice", "wonder:land"), ("b\u00f6b", "p\u00e4ss"), ("long", "x" * 72), ("long", "x" * 90)],
)
def test_the_right_password_opens(name: str, password: str) -> None:
    """Colons and UTF-8 are allowed, the scheme's case is free; bcrypt reads 72 bytes at most, as in Go."""
    header = _header(name, password).replace("Basic", "bAsIc")
    assert ask(_protected(), "/-/healthy", authorization=header).status == 200


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"alice").decode(),
        "Basic " + base64.b64encode(b"\xff:x").decode(),
        "Bearer abc",
        _header("alice", "wrong"),
        _header("alice", ""),
        _header("alice", "x" * 100),
        _header("alice", "wonder:land\0"),
        _header("ALICE", "wonder:land"),
        _header("nobody", "wonder:land"),
        _header("", ""),
    ],
)
def test_anything_else_does_not(header: str) -> None:
    """Wrong, malformed and over-long credentials are refused, and raise nothing."""
    assert ask(_protected(), "/-/healthy", authorization=header).status == 401


def test_right_passwords_are_checked_once(checks: list[bytes]) -> None:
    """Scrapes after the first cost no bcrypt; wrong passwords cost it every time."""

    async def scrape() -> list[bool]:
        passwords = Passwords()
        given = [b"wonder:land", b"wonder:land", b"wrong", b"wrong", b"wonder:land"]
        return [await _right(passwords, "alice", password) for password in given]

    assert asyncio.run(scrape()) == [True, True, False, False, True]
    assert checks == [b"wonder:land", b"wrong", b"wrong"]


def test_a_changed_hash_forgets_the_old_password() -> None:
    """What was right under the old hash is not right under the new."""
    changed = {"alice": bcrypt.hashpw(b"new", bcrypt.gensalt(4))}

    async def ask_twice() -> tuple[bool, bool, bool]:
        passwords = Passwords()
        return (
            await _right(passwords, "alice", b"wonder:land"),
            await _right(passwords, "alice", b"wonder:land", changed),
            await _right(passwords, "alice", b"new", changed),
        )

    assert asyncio.run(ask_twice()) == (True, False, True)


def test_an_unknown_user_is_checked_like_a_known_one(checks: list[bytes]) -> None:
    """Timing does not reveal names: bcrypt runs for both, and a password is valid only for its user."""
    for name in ("alice", "nobody"):
        assert not asyncio.run(_right(Passwords(), name, b"wrong"))
    assert not asyncio.run(_right(Passwords(), "nobody", b"wonder:land"))
    assert checks == [b"wrong", b"wrong", b"wonder:land"]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used entry is evicted first, and no password is kept in clear text."""
    monkeypatch.setattr(auth, "_REMEMBERED", 2)
    passwords = Passwords()

    async def visit() -> None:
        for name, password in (
            ("alice", b"wonder:land"),
            ("b\u00f6b", "p\u00e4ss".encode()),
            ("long", b"x" * 72),
        ):
            assert await _right(passwords, name, password)

    asyncio.run(visit())
    assert len(passwords._right) == 2
    assert all(len(ticket) == 32 for ticket in passwords._right)


class Gate:
    """Stands in for bcrypt: lets no check end before it is opened, and notes what was checked."""

    def __init__(self) -> None:
        self.fits = False
        self.open = threading.Event()
        self.begun = threading.Event()
        self.checked: list[bytes] = []

    def __call__(self, password: bytes, _: bytes) -> bool:
        """Wait, then return the scripted decision."""
        self.checked.append(password)
        self.begun.set()
        self.open.wait(30)
        return self.fits


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Make one that is open after the test."""
    found = Gate()
    yield found
    found.open.set()


def test_a_flood_of_wrong_passwords_holds_up_no_right_one(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen checks wait, other clients get 429 and are disconnected; known ones are served immediately."""
    app = _protected()
    known = _header("alice", "wonder:land")

    async def flood() -> tuple[list[Answer], int, list[int]]:
        assert (await call(app, "/metrics", authorization=known)).status == 200
        monkeypatch.setattr(auth, "_fits", gate)
        asked = [call(app, "/metrics", authorization=_header("alice", f"wrong{n}")) for n in range(60)]
        guesses = [asyncio.create_task(one) for one in asked]
        await asyncio.wait(guesses, return_when=asyncio.FIRST_COMPLETED)
        refused = [task.result() for task in guesses if task.done()]
        amid = (await call(app, "/metrics", authorization=known)).status
        gate.open.set()
        return refused, amid, sorted([(await one).status for one in guesses])

    refused, amid, statuses = asyncio.run(flood())
    assert amid == 200
    assert statuses == [401] * 17 + [429] * 43
    assert [answer.status for answer in refused] == [429] * 43
    assert {(one.headers["connection"], one.headers["retry-after"]) for one in refused} == {("close", "1")}


def test_who_has_gone_is_not_checked(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that disconnects while it waits frees its place, and its password is not hashed."""
    app = _protected()
    monkeypatch.setattr(auth, "_fits", gate)

    async def visit() -> int:
        first = asyncio.create_task(call(app, "/", authorization=_header("alice", "first")))
        await asyncio.to_thread(gate.begun.wait, 30)
        leaving = [
            asyncio.create_task(call(app, "/", authorization=_header("alice", f"gone{n}"), leave=True))
            for n in range(16)
        ]
        await asyncio.wait(leaving)
        assert all(one.cancelled() for one in leaving)
        last = asyncio.create_task(call(app, "/", authorization=_header("alice", "last")))
        gate.open.set()
        await first
        return (await last).status

    assert asyncio.run(visit()) == 401
    assert gate.checked == [b"first", b"last"]


def test_a_request_behind_one_that_is_checked_is_answered(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a client sends while its password is checked is kept."""
    request = f"GET /-/healthy HTTP/1.1\r\nHost: x\r\nAuthorization: {_header('alice', 'wonder:land')}\r\n"
    gate.fits = True
    monkeypatch.setattr(auth, "_fits", gate)
    with served(_protected()) as port, socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
        peer.sendall(f"{request}\r\n".encode())
        assert gate.begun.wait(30)
        peer.sendall(f"{request}Connection: close\r\n\r\n".encode())
        gate.open.set()
        found = b""
        while part := peer.recv(10_000):
            found += part
    assert found.count(b"200 OK") == 2


def test_guesses_do_not_use_up_the_rate_limit_of_who_is_known() -> None:
    """Requests with a password that was right before have a bucket of their own, of the same size."""
    clock = HandClock()
    settings = WebSettings(users=USERS, rate_limit=RateLimit(Duration(60.0), 2))
    app = WebApp(site(snapshot(), clock=clock, settings=lambda: settings))
    known = _header("alice", "wonder:land")
    assert ask(app, "/-/healthy", authorization=known).status == 200
    statuses = [ask(app, "/-/healthy", authorization=_header("alice", "wrong")).status for _ in range(3)]
    assert statuses == [401, 429, 429]
    assert [ask(app, "/-/healthy", authorization=known).status for _ in range(3)] == [200, 200, 429]


def test_the_rate_limit_refuses_and_recovers() -> None:
    """A burst passes, then one request per interval; the others get 429."""
    clock = HandClock()
    settings = WebSettings(rate_limit=RateLimit(Duration(2.0), 3))
    app = WebApp(site(snapshot(), clock=clock, settings=lambda: settings))

    def statuses(number: int) -> list[int]:
        return [ask(app, "/-/healthy").status for _ in range(number)]

    assert statuses(4) == [200, 200, 200, 429]
    clock.pass_seconds(2)
    assert statuses(2) == [200, 429]
    clock.pass_seconds(1000)
    assert statuses(4) == [200, 200, 200, 429]


def test_without_users_everybody_is_let_in() -> None:
    """No configuration, no password; an Authorization header does no harm."""
    answer = ask(site(snapshot()), "/api/v1/status", authorization=_header("a", "b"))
    assert json.loads(answer.text)["state"] == "ok"


def test_what_is_remembered_cannot_be_guessed_at() -> None:
    """The hash under which a password is cached has a key that no two processes share."""
    tickets = {Passwords()._ticket("alice", USERS["alice"], b"wonder:land") for _ in range(3)}
    assert len(tickets) == 3


def test_no_secret_is_compared_letter_by_letter() -> None:
    """== ends at the first difference and so tells by its time how much was right: bcrypt decides, or a hash.

    Looking a ticket up compares with == as well, but who does not have its key cannot choose its letters.
    """
    compared = [
        {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
        for node in ast.walk(ast.parse(inspect.getsource(auth)))
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops)
    ]
    assert compared
    assert not set().union(*compared) & {"password", "hashed", "encoded", "given", "ticket", "users"}
