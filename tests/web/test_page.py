"""The landing page as the server renders it, without a browser."""

import re
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
import requests
from msgspec.structs import replace

from exporter.health import DegradedReason, Health
from exporter.model.events import SCHEDULED, STARTED
from exporter.model.lifecycle import ENDINGS, Transition
from exporter.model.views import ApprovalView, Demonstration, Minute, Snapshot, WorkView
from exporter.web.page import landing, title
from tests.bench import Build
from tests.builders import raw_event
from tests.clocks import NOW, HandClock
from tests.web.support import Scene, ask, freeze, life, past, snapshot

# Markup, quotes, template syntax, control characters, bidirectional marks, half an emoji; and how they look.
MARKUP = "</bdi></main><script>alert(1)</script><img src=x onerror='alert(2)'>\"&amp;`"
SYNTAX = "{{ 7*7 }}{% raw %}{# note #}${x}%s"
HOSTILE = f"{MARKUP}{SYNTAX} \x00\x1b[31m\r\n\x85\u2028\x7f\u202e\u2066\u2069\u200f\u061c\ufeff\ud83d end"
SHOWN = f"{MARKUP}{SYNTAX} ??[31m ???????? end"
LONG_AGO = NOW - timedelta(minutes=3)


def shown(picture: Snapshot, demonstration: Demonstration | None = None, **fields: Any) -> str:
    return landing(Scene(picture, **fields), demonstration).body.decode()


class _Outline(HTMLParser):
    """Collects tags, attributes and text, and checks that elements close in order."""

    VOID = ("meta", "link", "br", "img", "input")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text += data


def _outline(html: str) -> _Outline:
    outline = _Outline()
    outline.feed(html)
    outline.close()
    assert outline.open == []
    return outline


def _pages_full_of(text: str) -> list[_Outline]:
    """Render pages with ``text`` in every field that comes from outside."""
    fields = dict.fromkeys(("event_type", "description", "event_source"), text)
    events = [
        freeze(event_id=text + str(n), event_status=status, resources=(text, text), **fields)
        for n, status in enumerate((text, SCHEDULED, STARTED))
    ]
    work = [WorkView(kind, text, None, "pending", None) for kind in ("message", "hook")]
    health = Health(HandClock())
    health.report(DegradedReason.INVALID_EVENT, text)
    current = tuple(map(life, events))
    gone = tuple(past(events[0], outcome, ago=9) for outcome in sorted(ENDINGS))
    return [
        _outline(
            shown(
                snapshot(instance=name, last_error=text, up=False, current=current, past=gone),
                health=health,
                state=ApprovalView(text, text, text),
                demonstration=Demonstration(text, 60.0, NOW),
                reason=text,
                done=work,
            )
        )
        for name in (text, "other")
    ]


def test_what_comes_from_outside_is_text() -> None:
    """No text opens an element or attribute, is read as a template, or reorders what stands around it."""
    for page, plain in zip(_pages_full_of(HOSTILE), _pages_full_of("harmless"), strict=True):
        assert page.tags == plain.tags
        assert page.text.count(SHOWN) == plain.text.count("harmless") > 30
        assert all(letter.isprintable() or letter == "\n" for letter in page.text)


def test_the_policy_allows_only_the_page_itself() -> None:
    """Style and script run by their hashes; nothing is loaded, framed or posted, and no referrer is sent."""
    headers = ask(Scene(), "/").headers
    hashed = r"'sha256-[A-Za-z0-9+/]{43}='"
    assert re.fullmatch(
        rf"default-src 'none'; style-src {hashed}; script-src {hashed}; connect-src 'self'; img-src data:; "
        r"frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        headers["content-security-policy"],
    )
    assert headers["referrer-policy"] == "no-referrer"


def test_every_reference_is_relative() -> None:
    """Or data, so that the page works behind a proxy's prefix; without a script it loads itself again."""
    html = shown(snapshot())
    references = [
        attrs[name] or "" for _, attrs in _outline(html).tags for name in ("href", "src") if name in attrs
    ]
    assert [reference.split(",")[0] for reference in references] == [
        "data:image/svg+xml",
        "-/in-service",
        "metrics",
        "api/v1/events",
        "api/v1/status",
    ]
    assert '<noscript><meta http-equiv="refresh" content="10"></noscript>' in html


def test_only_a_change_is_sent(build: Build) -> None:
    """While time passes and polls succeed the answer is 304; an event and a failed poll are changes."""
    bench = build()
    tag = ""

    def ask_again() -> int:
        nonlocal tag
        answer = requests.get(bench.app.url, headers={"if-none-match": tag}, timeout=60)
        assert "content-length" in answer.headers or (answer.status_code, answer.content) == (304, b"")
        tag = answer.headers["etag"]
        return answer.status_code

    bench.show(raw_event())
    assert ask_again() == 200
    bench.advance(90)
    assert [ask_again(), ask_again()] == [304, 304]
    bench.show(raw_event(EventStatus="Started"))
    assert [ask_again(), ask_again()] == [200, 304]
    bench.outage(2)
    assert [ask_again(), ask_again()] == [200, 304]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "Nothing pending"),
        ({"up": False, "ready": False}, "Waiting for Azure"),
        ({"current": (life(freeze(event_type="Reboot")),)}, "1 pending: Reboot Wed 22:12 UTC"),
        (
            {"current": (life(freeze(event_status="Started", not_before=None)), life(freeze()))},
            "2 pending: Freeze under way",
        ),
        ({"current": (life(freeze(not_before=None)),)}, "1 pending: Freeze scheduled"),
        ({"current": (life(freeze(resources=("x",))),)}, "Nothing pending"),
        ({"current": (life(freeze()),), "up": False}, "BLIND - 1 pending: Freeze Wed 22:12 UTC"),
    ],
)
def test_the_title_tells_the_gist(fields: dict[str, object], expected: str) -> None:
    """The tab's title has the most urgent event of this VM, or that the watch is blind."""
    assert title(snapshot(**fields), stalled=False).replace("\N{EN DASH}", "-") == f"{expected} - WestNO_0"


@pytest.mark.parametrize(
    ("fields", "mood", "expected"),
    [
        ({}, "ok", "Watching"),
        ({"up": False, "ready": False}, "warn", "Waiting for Azure's first response"),
        ({"up": False, "ready": False, "last_error": "refused"}, "alarm", "No valid response from Azure yet"),
        ({"up": False, "last_success": LONG_AGO}, "alarm", "Blind: no valid response from Azure"),
        ({"last_success": LONG_AGO}, "alarm", "Polling has stalled: Azure not polled"),
        ({"last_success": LONG_AGO, "poll_interval": 120.0}, "ok", "Watching"),
    ],
)
def test_the_state_of_the_watch_comes_first(fields: dict[str, object], mood: str, expected: str) -> None:
    """The first heading under the title is the state of the watch, in its colour."""
    page = shown(snapshot(**fields))
    assert f'class="watch {mood}"' in page
    assert re.sub(r"<.*?>", "", re.findall(r'<h2 id="watch-head">(.*?)</h2>', page)[0]).rstrip() == expected


def test_a_card_tells_everything() -> None:
    """Type, status, when, how long, who, which VMs, why and which id."""
    text = _outline(shown(snapshot(current=(life(freeze()),)))).text
    for part in (
        "Scheduled",
        "Starts  not before Wed 4 Mar, 22:12:00 UTC",
        "The VM pauses. CPU and network may be suspended; memory and open files are not affected.",
        "Expected impactabout 5 s",
        "Requested byAzure (Platform)",
        "Affected VMsWestNO_0, WestNO_1",
        freeze().event_id,
        freeze().description,
        "No events are scheduled for other VMs.",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("event_type", "status", "classes"),
    [
        ("Freeze", "Scheduled", "event info"),
        ("Reboot", "Started", "event critical started"),
        ("Preempt", "Advisory", "event warning"),
    ],
)
def test_an_event_has_the_colour_of_its_severity(event_type: str, status: str, classes: str) -> None:
    """The page uses the scale of the messages, for cards and for what is collapsed."""
    lives = [life(freeze(event_id=str(n), event_type=event_type, event_status=status)) for n in range(6)]
    html = shown(snapshot(current=tuple(lives)))
    assert html.count(f'<article class="{classes}">') == 3
    assert f'<details class="{classes}" data-id="5">' in html


@pytest.mark.parametrize("over", [0, 1])
def test_many_events_and_vms_are_cut(over: int) -> None:
    """The most urgent events are cards, others are collapsed, the rest is counted; so are VMs."""
    soon = (NOW + timedelta(seconds=n) for n in range(100 + over))
    many = tuple(life(freeze(event_id=str(n), not_before=at)) for n, at in enumerate(soon))
    gone = tuple(past(freeze(event_id=f"p{n}"), Transition.VANISHED, ago=n) for n in range(25 + over))
    outline = _outline(shown(snapshot(current=many, past=gone)))
    assert re.findall(r"and (\d+) more in api/v1/events", outline.text) == ["1", "1"] * over
    events = [attrs.get("data-id") for tag, attrs in outline.tags if tag in ("article", "details")]
    assert events == [None] * 3 + [str(n) for n in range(3, 100)]
    event = freeze(resources=tuple(f"vm-{n}" for n in range(20 + over)))
    text = _outline(shown(snapshot(current=(life(event),) * 9))).text
    assert ("vm-19 and 1 more" in text) is bool(over)
    assert f"22:12:00 UTC vm-0 and {19 + over} more" in text


def _main(**fields: Any) -> str:
    picture = fields.pop("picture", None) or snapshot(
        current=(life(freeze()),), past=(past(freeze(event_id="A"), Transition.COMPLETED, ago=60),)
    )
    main = shown(picture, **fields).partition("<main")[2].partition("</main>")[0]
    return " ".join(_outline(f"<main{main}</main>").text.split())


def test_what_stands_above_the_events() -> None:
    """A demo is marked as such, and the page has the reason why the VM is out of service."""
    assert "In service for load balancers: this VM may get new work" in _main()
    text = _main(
        reason="Reboot X is Scheduled",
        demonstration=Demonstration("Simulated events.", 60.0, NOW),
    )
    assert "Simulated events. Scheduled events for WestNO_0" in text
    assert "Out of service for load balancers: Reboot X is Scheduled (-/in-service)." in text
    waiting = snapshot(up=False, ready=False, last_success=None)
    assert "In service for load balancers until Azure responds" in _main(picture=waiting)


def test_the_failed_polls_of_the_last_hour() -> None:
    """They are counted, with the last one and a bar for each minute; without any there is nothing to show."""
    good = Minute(NOW, succeeded=60)
    assert "Last hour" not in _main(polls=(good,))
    bad = Minute(NOW - timedelta(minutes=1), succeeded=57, failed=2, reason="connection_error")
    text = _main(polls=(bad, good))
    assert "Last hour: 2 failed polls; last failure connection error, Wed 4 Mar, 21:59:00 UTC." in text
    html = shown(snapshot(), polls=(Minute(NOW), bad, good))
    assert re.findall(r'<rect class="(\w+)" x="(\d+)"', html) == [("alarm", "4"), ("ok", "8")]


def test_who_was_told_and_which_hooks_ran() -> None:
    """Of each event, current or past: target, transition, state and time, the newest first; many are cut."""
    work = [
        WorkView("message", "oncall", Transition.SCHEDULED, "delivered", NOW),
        WorkView("message", "chat", Transition.SCHEDULED, "pending", None),
        WorkView("message", "silent", Transition.SCHEDULED, "", NOW),
        WorkView("hook", "drain", None, "timed_out", NOW),
    ]
    text = _main(done=work)
    messages = "pending chat, scheduled delivered oncall, scheduled Wed 4 Mar, 22:00:00 UTC"
    hooks = "timed out drain Wed 4 Mar, 22:00:00 UTC"
    assert f"Hooks {hooks} Messages {messages} Event ID" in text
    assert f"Completed Messages and hooks {messages} {hooks}" in text
    assert "silent" not in text
    many = [WorkView("message", f"target-{n}", Transition.SCHEDULED, "delivered", NOW) for n in range(20)]
    text = _main(done=many)
    assert "delivered target-19" in text
    assert "target-8," in text
    assert "… and 8 earlier" in text


def test_past_events_have_an_outcome_and_a_duration() -> None:
    """Each has its first id; the pause of the VM is told where it was observed."""
    completed = past(freeze(event_id="b"), Transition.COMPLETED, ago=60)
    ended = (
        replace(completed, ids=("a", "b"), paused_seconds=4.0),
        completed,
        past(freeze(event_id="c", resources=("x",)), Transition.CANCELLED, ago=60),
        past(freeze(event_id="d"), Transition.VANISHED, ago=60),
    )
    own = "this VM: WestNO_0, WestNO_1"
    assert _main(picture=snapshot(past=ended)).split("Wed 4 Mar, 21:59:00 UTC ")[1:] == [
        f"Freeze a Completed 9 min; VM paused 4 s {own} ",
        f"Freeze b Completed 9 min {own} ",
        "Freeze c Cancelled before it started did not start x ",
        f"Freeze d Gone unseen; outcome not known unknown {own}",
    ]


def test_a_card_has_the_approval_and_when_a_start_was_noticed() -> None:
    """Without a state of approval there is no line of it."""
    noticed = replace(life(freeze(event_status="Started")), started=None, first_seen=NOW - timedelta(hours=1))
    picture = snapshot(current=(noticed,))
    text = _main(picture=picture, state=ApprovalView("hold", "no-reboots", "why"))
    assert "Already under way at Wed 4 Mar, 21:59:00 UTC" in text
    assert "ApprovalHeld (rule no-reboots): why Event ID" in text
    assert "Approval" not in _main(picture=picture)
