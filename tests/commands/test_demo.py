import re
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
import requests

from exporter.app import App, Options
from exporter.clock import FastClock, SystemClock
from exporter.commands.demo import Demo, Messages, as_in_demo, demonstrating, frame
from exporter.config import Overrides
from exporter.config.addresses import Address, NotifyUrls
from exporter.health import Health
from exporter.model.messages import Delivery, Rendered, Severity
from exporter.outputs.notifications.protocol import Send
from exporter.simulator import Simulator, SimulatorServer
from tests.bench.senders import MemorySender
from tests.builders import body, message, raw_event
from tests.clocks import NOW, HandClock
from tests.end_to_end.program import eventually
from tests.receivers import http_receiver
from tests.web.support import freeze, life, snapshot


class Running:
    url = "http://127.0.0.1:9843"

    def __init__(self, **fields: Any) -> None:
        self.snapshot = snapshot(endpoint="http://127.0.0.1:9", **fields)


def demo(count: int, messages: int = 0, speed: float = 60.0, **fields: Any) -> Demo:
    events = tuple(life(freeze(event_id=f"{number:036}")) for number in range(count))
    shown = Messages()
    for number in range(messages):
        shown.keep(Rendered(f"title {number}", f"body {number}\n" * 30, "text", Severity.WARNING))
    clock = HandClock() if speed == 1 else FastClock(HandClock(), speed)
    return Demo(cast(App, Running(current=events, **fields)), clock, shown)


@pytest.mark.parametrize(
    ("height", "count", "messages", "shown"),
    [
        (24, 0, 0, (0, 0, 0)),
        (24, 1, 3, (1, 12, 3)),
        (24, 3, 51, (3, 6, 5)),
        (23, 40, 1, (4, 6, 1)),
        (25, 40, 1, (5, 6, 1)),
        (10, 40, 0, (1, 0, 0)),
    ],
)
def test_a_small_terminal(height: int, count: int, messages: int, shown: tuple[int, int, int]) -> None:
    """There are always the headline, an event, the newest message and what is left out."""
    rows, body, titles = shown
    lines = frame(demo(count, messages), height).plain.split("\n")
    assert len(lines) <= height
    assert lines[:3] == [
        "Simulated events and times at 60x: 15 minutes take 15 s. No real VM is involved.",
        "Page, metrics and API: http://127.0.0.1:9843   Stop with Ctrl-C.",
        "Simulator's page: http://127.0.0.1:9",
    ]
    assert ("No events are pending." in lines) is (count == 0)
    assert ("No message yet." in lines) is (messages == 0)
    assert sum(line.endswith(" Freeze") for line in lines) == rows
    assert lines.count(f"body {messages - 1}") == sum(line.startswith("body") for line in lines) == body
    newest = [f"title {number}" for number in range(messages)][::-1]
    assert [line for line in lines if line.startswith("title")] == newest[:titles]
    assert (f"... and {count - rows} more on the page" in lines) is (count > rows)


def test_the_screen_of_another_imds() -> None:
    """Its times are real, and its address is shown; until it answers, the reason is."""
    lines = frame(demo(1, 0, 1.0, up=False, last_error="no\tanswer"), 24).plain.split("\n")
    assert lines[0] == "Events of http://127.0.0.1:9"
    assert lines[2:] == ["", "No valid response from IMDS yet: no?answer", "", "No message yet."]


def test_no_message_is_printed_twice() -> None:
    """Each look continues where the last one ended, whatever arrives meanwhile; the newest 50 are kept."""
    messages = demo(0, 2).messages
    (first, second), told = messages.after(0)
    assert (first.title, second.title, told, messages.after(told)) == ("title 0", "title 1", 2, ([], 2))
    for one in (first, *[second] * 50):
        messages.keep(one)
    assert messages.after(told) == ([second] * 50, 53)


def test_all_of_the_demo_has_one_clock() -> None:
    """Terminal, page, API, metrics, messages and what is out of service agree on 15 minutes to the start."""
    with demonstrating(Options(listen_address="127.0.0.1:0"), SystemClock()) as shown:
        simulator = shown.app.snapshot.endpoint
        requests.post(f"{simulator}/api/v1/stop", json={}, timeout=30).raise_for_status()
        requests.post(
            f"{simulator}/api/v1/scenarios/user-reboot/start", json={}, timeout=30
        ).raise_for_status()
        eventually(lambda: [one for one in shown.events if one.type == "Reboot"])
        began = shown.clock.now()
        row = next(line for line in frame(shown, 30).plain.split("\n") if line.endswith(" Reboot"))
        service = requests.get(f"{shown.app.url}/-/in-service", timeout=30).status_code
        (listed,) = requests.get(f"{shown.app.url}/api/v1/events", timeout=30).json()["current"]
        page = requests.get(f"{shown.app.url}/", timeout=30).text
        metrics = requests.get(f"{shown.app.url}/metrics", timeout=30).text
        picture = requests.get(f"{simulator}/api/v1/state", timeout=30).json()
        took = (shown.clock.now() - began).total_seconds()
        message = eventually(lambda: [one for one in shown.messages.after(0)[0] if "Reboot" in one.title])[0]
    not_before = datetime.fromisoformat(listed["not_before"])
    assert timedelta(minutes=13) < not_before - datetime.fromisoformat(listed["first_seen"])
    assert timedelta(minutes=13) < not_before - began <= timedelta(minutes=15)
    assert re.search(r" in 1[345]m", row)
    assert service == 200
    assert f"not before {not_before:%Y-%m-%d %H:%M:%S} UTC" in message.body
    left = float(re.findall(r"event_seconds_to_not_before\{.*Reboot.*\} (\S+)", metrics)[0])
    assert 0 <= (not_before - began).total_seconds() - left <= took
    assert f'datetime="{listed["not_before"]}" data-count="in"' in page
    assert 'data-speed="60.0"' in page
    assert picture["events"][0]["starts"][:19] == listed["not_before"][:19]


def test_the_demo_of_another_imds() -> None:
    """It shows the events of that one in real time, prints messages as plain text, and sends them."""
    with SimulatorServer(Simulator(idle=True, vm_name="WestNO_0")) as imds, http_receiver() as chat:
        imds.simulator.set_document(body(raw_event()))
        options = Options(
            listen_address="127.0.0.1:0",
            notify=NotifyUrls([f"json://{chat.authority}/"]),
            overrides=Overrides(imds_endpoint=imds.url),
        )
        with demonstrating(options, SystemClock()) as shown:
            eventually(lambda: chat.requests)
            eventually(lambda: shown.messages.arrivals()[0].plain == "notify-1 (json://127.0.0.1): arrived")
            assert (len(shown.events), shown.clock.speed) == (1, 1)
            assert [one.format for one in shown.messages.after(0)[0]] == ["text"]


def test_how_late_a_message_of_the_demo_is() -> None:
    """It is told in real time, as sending takes real time; titles that leave the terminal are marked."""
    sender, now = MemorySender(is_real=True), NOW + timedelta(minutes=4)
    requests = [Send(Address(name), message(), now) for name in ("terminal", "chat")]
    found = [sender.ask(as_in_demo(request, 60.0)) for request in requests]
    texts = [one.rendered for one in found if isinstance(one, Delivery) and one.rendered]
    assert [text.title for text in texts] == [
        "[WARNING] Reboot scheduled: vm_0 at 22:15 UTC (15 min)",
        "(demo) [WARNING] Reboot scheduled: vm_0 in 15 min",
    ]
    assert "This happened at" not in texts[0].body


def test_the_clock_of_the_demo_is_no_problem() -> None:
    """It differs from those of Alertmanagers, which run in real time."""
    for speed, count in ((60.0, 0), (1.0, 1)):
        health = Health(FastClock(HandClock(), speed))
        health.check_clock(3600.0, "IMDS", "the time left is wrong")
        assert len(health.problems()) == count
