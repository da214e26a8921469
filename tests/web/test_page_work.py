"""Tests of what the page shows beside events: service, polls, messages and hooks, and a notice."""

import re
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

from exporter.model.lifecycle import Transition
from exporter.model.views import Minute, WorkView
from exporter.web.page import WORK_SHOWN
from tests.clocks import NOW
from tests.web.support import ask, freeze, past, site, snapshot, tracked

SCHEDULED = Transition.SCHEDULED


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def shown(**fields: Any) -> str:
    """Return the text of a page with an event and a past one."""
    picture = fields.pop("picture", None) or snapshot(
        current=(tracked(freeze()),), past=(past(freeze(event_id="A"), Transition.COMPLETED, ago=60),)
    )
    parser = _Text()
    parser.feed(ask(site(picture, **fields), "/").text.partition("<main")[2].partition("</main>")[0])
    return " ".join("".join(parser.words).split())


def test_whether_it_is_in_service() -> None:
    """The page says why a load balancer should send nothing."""
    assert "In service for load balancers: no event requires" in shown()
    text = shown(in_service=lambda: "Reboot X is Scheduled")
    assert "Out of service for load balancers: Reboot X is Scheduled (-/in-service)." in text
    waiting = snapshot(up=False, ready=False, last_success=None)
    assert "In service for load balancers until Azure responds" in shown(picture=waiting)


def test_the_polls_of_the_last_hour() -> None:
    """They are counted, with the last failure; without any there is nothing to show."""
    assert "Last hour" not in shown()
    good = Minute(NOW, succeeded=60)
    assert "Last hour: 60 polls, none failed." in shown(polls=lambda: (good,))
    assert "Last hour: 1 poll, none failed." in shown(polls=lambda: (Minute(NOW, 1),))
    bad = Minute(NOW - timedelta(minutes=1), succeeded=57, failed=2, reason="connection_error")
    text = shown(polls=lambda: (bad, good))
    assert (
        "Last hour: 119 polls, 2 failed; last failure connection error, at Wed 4 Mar, 21:59:00 UTC." in text
    )
    html = ask(site(snapshot(), polls=lambda: (Minute(NOW), bad, good)), "/").text
    assert re.findall(r'<rect class="(\w+)" x="(\d+)"', html) == [("alarm", "4"), ("ok", "8")]


def test_who_was_told_and_which_hooks_ran() -> None:
    """Of each event, current or past, there are target, transition, state and time, newest first."""
    work = [
        WorkView("message", "oncall", SCHEDULED, "delivered", NOW),
        WorkView("message", "chat", SCHEDULED, "pending", None),
        WorkView("message", "quiet", SCHEDULED, "", NOW),
        WorkView("hook", "drain", None, "timed_out", NOW),
    ]
    text = shown(work=lambda lives: dict.fromkeys(lives, work))
    messages = "pending chat, scheduled delivered oncall, scheduled Wed 4 Mar, 22:00:00 UTC"
    hooks = "timed out drain Wed 4 Mar, 22:00:00 UTC"
    assert f"Hooks {hooks} Messages {messages} Event ID" in text
    assert f"Completed Messages and hooks {messages} {hooks}" in text
    assert "quiet" not in text


def test_a_long_list_is_cut() -> None:
    """The newest are shown, and the others counted."""
    work = [WorkView("message", f"target-{number}", SCHEDULED, "delivered", NOW) for number in range(20)]
    text = shown(work=lambda lives: dict.fromkeys(lives, work))
    assert "delivered target-19" in text
    assert "target-7," not in text
    assert f"… and {20 - WORK_SHOWN} earlier" in text


def test_a_notice_stands_above_everything() -> None:
    """A demo says that it is one."""
    assert "Simulated" not in shown()
    assert "Simulated events. Scheduled events for WestNO_0" in shown(notice="Simulated events.")
