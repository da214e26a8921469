import base64
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice

import bcrypt
import pytest
from prometheus_client import CollectorRegistry

from exporter.metrics import Metrics
from exporter.web import auth
from exporter.web.app import WebApp
from exporter.web.auth import Passwords
from exporter.web.webfile import RateLimit, WebSettings
from tests.clocks import HandClock
from tests.web.support import Answer, Scene, application, ask

USERS = {
    "alice": bcrypt.hashpw(b"wonder:land", bcrypt.gensalt(4)),
    "b\u00f6b": bcrypt.hashpw("p\u00e4ss".encode(), bcrypt.gensalt(4)),
    "long": bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)),
}


def _header(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def _protected() -> WebApp:
    return application(settings=lambda: WebSettings(users=USERS))


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, int]]:
    """Note every password that is really checked, with the cost of the hash."""
    seen: list[tuple[bytes, int]] = []
    fits = auth._fits

    def noted(password: bytes, hashed: bytes) -> bool:
        seen.append((password, int(hashed[4:6])))
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
    ("header", "status"),
    [
        (_header("alice", "wonder:land").replace("Basic", "bAsIc"), 200),
        (_header("b\u00f6b", "p\u00e4ss"), 200),
        (_header("long", "x" * 72), 200),
        (_header("long", "x" * 90), 200),
        ("", 401),
        ("Basic !!!", 401),
        ("Basic " + base64.b64encode(b"alice").decode(), 401),
        ("Basic " + base64.b64encode(b"\xff:x").decode(), 401),
        ("Bearer abc", 401),
        (_header("alice", "wrong"), 401),
        (_header("alice", "x" * 100), 401),
        (_header("alice", "wonder:land\0"), 401),
        (_header("ALICE", "wonder:land"), 401),
        (_header("nobody", "wonder:land"), 401),
    ],
)
def test_only_the_right_password_opens(header: str, status: int) -> None:
    """Colons and UTF-8 are allowed, the scheme's case is free; bcrypt reads 72 bytes at most, as in Go."""
    answer = ask(_protected(), "/-/healthy", authorization=header)
    assert (answer.status, answer.authenticated) == (status, status == 200)
    # Without users everybody is let in.
    answer = ask(Scene(), "/-/healthy", authorization=header)
    assert (answer.status, answer.authenticated) == (200, False)


def test_a_salt_with_spare_bits() -> None:
    """The last character of a salt counts by its first two bits, as in Go."""
    # Accepted by bcrypt.CompareHashAndPassword of golang.org/x/crypto v0.59.0.
    users = {"alice": b"$2b$04$/RJr3jffVzTxLE4uUG5.eUpaaCHLd8A/pYZQ7u9h/QHYmQ/dzlGRC"}
    assert [Passwords().check(users, "alice", word) for word in (b"secret", b"wrong")] == [True, False]


@pytest.mark.parametrize(("name", "cost"), [("cheap", 4), ("dear", 7), ("nobody", 7), ("", 7)])
def test_the_time_of_a_check_reveals_no_name(checks: list[tuple[bytes, int]], name: str, cost: int) -> None:
    """For an unknown name it is that of the most expensive hash."""
    hashes = {name: bcrypt.hashpw(b"x", bcrypt.gensalt(cost)) for name, cost in (("dear", 7), ("cheap", 4))}
    assert Passwords().check(hashes, name, b"wrong") is False
    assert Passwords().check(hashes, name, b"x") is (name in hashes)
    assert checks == [(b"wrong", cost), (b"x", cost)]


def test_failed_logins_are_counted_and_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """Each is counted; the log has the first at once, then one line a minute, without names."""
    clock, metrics = HandClock(), Metrics(CollectorRegistry())
    app = application(Scene(clock=clock), lambda: WebSettings(users=USERS), metrics=metrics)

    def guess(times: int) -> None:
        for number in range(times):
            header = _header(f"canary{number}", "wrong")
            assert ask(app, "/", authorization=header).status == 401

    guess(3)
    ask(app, "/")
    ask(app, "/", authorization=_header("alice", "wonder:land"))
    clock.pass_seconds(60)
    guess(1)
    assert metrics.registry.get_sample_value("azure_scheduled_events_failed_logins_total") == 4
    assert [(record.message, record.__dict__["count"]) for record in caplog.records] == [
        ("failed logins", 1),
        ("failed logins", 3),
    ]
    assert {record.__dict__["last_client"] for record in caplog.records} == {"192.0.2.1"}


class Gate:
    """Stands in for bcrypt: lets no check end before it is opened, and counts those in progress."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.at_once: list[int] = []
        self._in_progress = 0

    def __call__(self, _: bytes, __: bytes) -> bool:
        self._in_progress += 1
        self.at_once.append(self._in_progress)
        self.open.wait(30)
        self._in_progress -= 1
        return False


def test_a_flood_of_wrong_passwords_holds_up_no_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One check runs, three wait, others get 429 and are disconnected; known clients are served meanwhile."""
    app, gate = _protected(), Gate()
    known = _header("alice", "wonder:land")
    assert ask(app, "/metrics", authorization=known).status == 200
    monkeypatch.setattr(auth, "_fits", gate)

    def guess(number: int) -> Answer:
        return ask(app, "/metrics", authorization=_header("alice", f"wrong{number}"))

    with ThreadPoolExecutor(60) as pool:
        guesses = [pool.submit(guess, number) for number in range(60)]
        refused = [guess.result() for guess in islice(as_completed(guesses, timeout=30), 56)]
        amid = ask(app, "/metrics", authorization=known).status
        gate.open.set()
    assert amid == 200
    assert sorted(guess.result().status for guess in guesses) == [401] * 4 + [429] * 56
    assert [answer.status for answer in refused] == [429] * 56
    assert {(one.headers["connection"], one.headers["retry-after"]) for one in refused} == {("close", "1")}
    assert gate.at_once == [1] * 4


def test_the_rate_limit_refuses_and_recovers() -> None:
    """A burst passes, then one request per interval; the others get 429. Who is known has a bucket apart."""
    clock = HandClock()
    settings = WebSettings(users=USERS, rate_limit=RateLimit(2.0, 3))
    app = application(Scene(clock=clock), lambda: settings)

    def statuses(number: int, word: str = "wrong") -> list[int]:
        header = _header("alice", word)
        return [ask(app, "/-/healthy", authorization=header).status for _ in range(number)]

    assert statuses(1, "wonder:land") == [200]
    assert statuses(4) == [401, 401, 429, 429]
    assert statuses(4, "wonder:land") == [200, 200, 200, 429]
    clock.pass_seconds(2)
    assert statuses(2) == [401, 429]
    clock.pass_seconds(1000)
    assert statuses(4) == [401, 401, 401, 429]
