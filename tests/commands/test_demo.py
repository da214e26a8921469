"""Tests of `demo`: what fits on the screen, and messages in simulated time."""

from datetime import timedelta
from typing import Any, cast

import pytest
from msgspec.structs import replace

from exporter.app import App
from exporter.commands.demo import Demo, Messages, frame, simulated
from exporter.config import Templates
from exporter.model.lifecycle import Transition
from exporter.model.messages import Message, Rendered, Severity
from exporter.notifications.planning import Plan
from exporter.notifications.rendering import Renderer
from exporter.notifications.templating import variants
from tests.clocks import NOW, HandClock
from tests.web.support import freeze, snapshot, tracked


class Running:
    """A fake of a running exporter with some events."""

    url = "http://127.0.0.1:9843"

    def __init__(self, **fields: Any) -> None:
        self.snapshot = snapshot(endpoint="http://127.0.0.1:9", **fields)


def demo(count: int, messages: int = 0, **fields: Any) -> Demo:
    """Make a demo with some events and messages."""
    events = tuple(tracked(freeze(event_id=f"{number:036}")) for number in range(count))
    shown = Messages()
    for number in range(messages):
        shown.send(Rendered(f"title {number}", "line\n" * 30, "text", Severity.WARNING))
    return Demo(cast(App, Running(current=events, **fields)), HandClock(), 60.0, shown)


@pytest.mark.parametrize(("count", "messages"), [(0, 0), (1, 1), (3, 50), (40, 50)])
def test_a_small_terminal(count: int, messages: int) -> None:
    """On 24 lines there are always the headline, an event, the newest message and what is left out."""
    lines = frame(demo(count, messages), 24).plain.split("\n")
    assert len(lines) <= 24
    assert lines[0] == "Simulated events at 60x: 15 minutes take 15 seconds. No VM is affected."
    assert lines[1] == "Page, metrics and API: http://127.0.0.1:9843   Stop with Ctrl-C."
    assert ("No events are pending." in lines) is (count == 0)
    assert ("No message yet." in lines) is (messages == 0)
    assert (f"title {messages - 1}" in lines) is (messages > 0)
    assert (f"title {messages - 2}" in lines) is (messages > 1)
    assert sum(line.startswith("Freeze") for line in lines) == min(count, 4)
    assert ("... and 36 more on the page" in lines) is (count == 40)


def test_a_demo_that_sees_nothing() -> None:
    """Until IMDS answers, the reason is shown."""
    lines = frame(demo(1, up=False, last_error="refused\x1b"), 24).plain.split("\n")
    assert "No valid response from IMDS yet: refused?" in lines


def test_messages_are_in_simulated_time() -> None:
    """What is 15 real seconds away is 15 minutes away, and so on for every time in a message."""
    plan = simulated(Plan(renderer=lambda: Renderer(Templates(format="text"))), 60.0, NOW)
    for _, message in variants():
        if message.transition is Transition.SCHEDULED and isinstance(message, Message):
            at = NOW + timedelta(seconds=10)
            event = replace(message.event, not_before=at + timedelta(seconds=15), description="")
            rendered = plan.renderer().render(replace(message, at=at, event=event), at)
            assert rendered.title.endswith(" in 15 min")
            assert "not before 2026-03-04 22:25:00 UTC" in rendered.body
            return
    pytest.fail("no sample is about a scheduled event")


def test_a_plan_at_the_speed_of_the_clock_stays_as_it_is() -> None:
    """There is nothing to adapt."""
    plan = Plan()
    assert simulated(plan, 1.0, NOW) is plan
