"""A night of events, outages and kills, with receivers that fail in every way, and a pager."""

import json
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from exporter.notifications.schedule import MOST_ATTEMPTS
from exporter.simulator import Fault, Simulator, SimulatorServer, load_scenarios
from tests.builders import raw_event
from tests.end_to_end.program import eventually, exporter, free_port, get
from tests.end_to_end.test_notifications import Happened, Told, count, metric, told
from tests.notifications.receivers import Received, Receiver, TlsProxy, http_receiver, tls_proxy

NAME = "demo_0"
# `make soak` has a longer one.
NIGHT_SECONDS = float(os.environ.get("NIGHT_SECONDS", "6"))
KILLS = 6
SPEED = 400.0
MOODS: tuple[int | str, ...] = (200, 200, 500, "hang", 429, 200)
SLOW_SECONDS = 1.0
ELSEWHERE = "https://elsewhere.example"
WATCH_TOLD = re.compile(r"Watch (blind|recovered): ")
TARGETS = ("steady", "shaky", "slow", "picky", "moved")


@dataclass
class Night:
    """The receivers of one night; ``poison`` is what the picky one does not accept a message about."""

    receivers: dict[str, Receiver]
    pager: TlsProxy
    folder: Path
    poison: Told | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Set the mood of each receiver."""
        self.receivers["slow"].mood = self.take_time
        self.receivers["picky"].mood = self.refuse
        self.receivers["moved"].mood = 302
        self.receivers["moved"].answer_headers = {"Location": f"{ELSEWHERE}/hooks/token"}

    @staticmethod
    def take_time(_: bytes) -> int:
        """Answer late."""
        time.sleep(SLOW_SECONDS)
        return 200

    def refuse(self, body: bytes) -> int:
        """Refuse the first message about an event that comes."""
        about = told(json.loads(body))
        with self.lock:
            self.poison = self.poison or (about[0] if about else None)
        return 400 if self.poison in about else 200

    def configuration(self) -> str:
        """Write it, and return its path."""
        urls = {name: f"json://{one.authority}/{name}" for name, one in self.receivers.items()}
        urls["pager"] = f"pagerduty://{'0123456789abcdef' * 2}@12345678901234567890"
        targets = [{"name": name, "url": url} for name, url in urls.items()]
        file = self.folder / "exporter.yml"
        file.write_text(json.dumps({"notifications": {"targets": targets, "watch": {"after": "2s"}}}))
        return str(file)

    @property
    def environ(self) -> Mapping[str, str]:
        """Return what leads the pager's messages here."""
        authority = self.folder / "ca.pem"
        self.pager.authority.cert_pem.write_to_path(str(authority))
        return {
            "HTTPS_PROXY": f"http://127.0.0.1:{self.pager.port}",
            "NO_PROXY": "",
            "REQUESTS_CA_BUNDLE": str(authority),
        }


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    """Return the receivers."""
    with ExitStack() as stack:
        receivers = {name: stack.enter_context(http_receiver()) for name in TARGETS}
        yield Night(
            receivers, stack.enter_context(tls_proxy({"events.pagerduty.com": (202, b"{}")})), tmp_path
        )


@contextmanager
def moody(receiver: Receiver, chance: random.Random) -> Iterator[None]:
    """Change a receiver's mood again and again; it is in a good one at the end."""
    over = threading.Event()

    def change() -> None:
        while not over.wait(chance.uniform(0.5, 2.5)):
            receiver.released.set()
            receiver.released = threading.Event()
            receiver.mood = chance.choice(MOODS)
        receiver.mood = 200
        receiver.released.set()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def check_pager(requests: list[Received], url: str) -> None:
    """Check that each event was one incident for each of its lives, and that none is left open."""
    answer = json.loads(get(f"{url}/api/v1/events"))
    lives = Counter(event["id"] for event in answer["past"] if event["target"] == "self")
    opened, is_open = Counter[str](), set[str]()
    for body in (request.json for request in requests):
        key = body["dedup_key"]
        if body["event_action"] == "resolve":
            is_open.discard(key)
        elif key not in is_open:
            opened[key] += 1
            is_open.add(key)
    assert is_open == set()
    watch = f"watch/{NAME}"
    assert opened.pop(watch) >= 1
    keys = {request.json["dedup_key"] for request in requests} - {watch}
    # If IMDS was too slow to return the name first, the id is the key.
    assert {key.removesuffix(f"/{NAME}") for key in keys} == set(lives)
    # Of an event that was over before its message was sent, no incident is opened.
    assert opened
    for key, times in opened.items():
        assert times <= lives[key.removesuffix(f"/{NAME}")]


def watch_is_told(receiver: Receiver) -> bool:
    """Return whether the outages of the watch, of which there was one, have a beginning and an end."""
    found = [WATCH_TOLD.findall(request.body.decode()) for request in receiver.requests]
    kinds = [kind for each in found for kind in each]
    return bool(kinds) and (kinds[0], kinds[-1]) == ("blind", "recovered")


@pytest.mark.timeout(500 + NIGHT_SECONDS * 4)
def test_a_night_at_speed(night: Night) -> None:
    """Scenarios in a loop, kills, IMDS blind for a while: all arrives, and no incident stays open."""
    chance = random.Random(20261121)
    simulator = Simulator(load_scenarios(), speed=SPEED, loop=True, vm_name=NAME, requests_per_second=0)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    receivers = night.receivers
    with SimulatorServer(simulator) as imds:
        flags = ("--config.file", night.configuration(), "--poll.interval", "200ms")

        @contextmanager
        def running() -> Iterator[None]:
            with exporter(
                imds.url,
                night.folder / "state",
                port,
                *flags,
                environ=night.environ,
                log=night.folder / "log",
            ):
                eventually(lambda: get(f"{url}/-/healthy"))
                yield

        with moody(receivers["shaky"], chance):
            for kill in range(KILLS):
                with running():
                    simulator.set_fault(None)
                    eventually(lambda: get(f"{url}/-/ready"))
                    if kill == KILLS // 2:
                        go_blind(simulator, receivers["steady"], night.pager)
                        continue
                    time.sleep(chance.uniform(0.2, 2 * NIGHT_SECONDS / KILLS))
                    if kill == 0:
                        eventually(lambda: f"a redirect to {ELSEWHERE};" in get(f"{url}/api/v1/status"))
        receivers["moved"].mood = 200
        before = {name: count(receiver) for name, receiver in receivers.items()}
        with running():
            eventually(lambda: get(f"{url}/-/ready"))
            simulator.set_document({"DocumentIncarnation": 10**6, "Events": []})
            eventually(lambda: not json.loads(get(f"{url}/api/v1/events"))["current"])
            for target in (*TARGETS, "pager"):
                eventually(lambda: metric(url, "notifications_pending", target=target) == 0, within=150)  # noqa: B023  # called at once
            happened = Happened.read(url)
            assert len(happened.at) > 10
            for name, receiver in receivers.items():
                # Where answers take long, several attempts may be under way when the process is killed.
                repeats = KILLS * MOST_ATTEMPTS
                happened.check(receiver, repeats, refused=night.poison if name == "picky" else None)
                delivered = metric(url, "notifications_total", target=name, outcome="delivered")
                assert delivered <= count(receiver) - before[name]
            check_pager(night.pager.requests, url)
            # A busy machine can cause further outages.
            eventually(lambda: watch_is_told(receivers["steady"]))


def go_blind(simulator: Simulator, told_of_it: Receiver, pager: TlsProxy) -> None:
    """Fail requests to IMDS until the outage is reported, and beyond the kill."""
    simulator.set_fault(Fault("error"))
    known = len(told_of_it.requests)
    # It may be in a digest.
    eventually(lambda: any(b"Watch blind: " in one.body for one in told_of_it.requests[known:]))
    eventually(lambda: [one for one in pager.requests if one.json["dedup_key"] == f"watch/{NAME}"])


@pytest.mark.parametrize("mood", ["hang", 400, 500])
def test_a_critical_message_is_not_held_up(tmp_path: Path, mood: int | str) -> None:
    """While a receiver does not answer, refuses or fails for one message, the next one arrives."""
    simulator = Simulator(vm_name=NAME, requests_per_second=0)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    events = [
        raw_event(EventId="bad", EventType="Freeze", Resources=[NAME]),
        raw_event(EventId="grave", EventType="Preempt", Resources=[NAME]),
    ]
    with SimulatorServer(simulator) as imds, http_receiver() as receiver:
        receiver.mood = lambda body: mood if b"Freeze bad" in body else 200
        flags = ("--notify", f"json://{receiver.authority}/", "--poll.interval", "200ms")
        with exporter(imds.url, tmp_path / "state", port, *flags):
            eventually(lambda: get(f"{url}/-/ready"))
            simulator.set_document({"DocumentIncarnation": 1, "Events": events[:1]})
            eventually(lambda: metric(url, "notifications_pending", target="notify-1") == 1)
            simulator.set_document({"DocumentIncarnation": 2, "Events": events})
            eventually(lambda: receiver.requests)
            eventually(lambda: metric(url, "notifications_pending", target="notify-1") == 1)
    assert told(receiver.requests[0].json) == [("grave", "scheduled")]
