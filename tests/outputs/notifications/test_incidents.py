import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from exporter.model.lifecycle import Transition, TransitionRecord
from exporter.model.messages import AnyMessage, Delivery, Message, WatchChange, WatchMessage
from exporter.outputs.notifications.child import Child
from tests.bench import VM, Build
from tests.builders import REBOOT_ID, message, raw_event
from tests.clocks import NOW
from tests.http_server import Request
from tests.outputs.notifications.sending import send
from tests.receivers import TlsProxy, http_receiver

KEY = f"{REBOOT_ID}/vm_0"
TOKEN = "0123456789abcdef" * 2
# The URL of a service, its keys of an incident and an action, and what opens or updates, and what closes.
SERVICES = {
    "pagerduty": (f"{TOKEN}@12345678901234567890", "dedup_key", "event_action", "trigger", "resolve"),
    "ilert": (TOKEN, "alertKey", "eventType", "ALERT", "RESOLVE"),
    "incidentio": ("01GW2G3V0S59R238FAHPDS1R66/token", "deduplication_key", "status", "firing", "resolved"),
    "squadcast": (TOKEN, "event_id", "status", "trigger", "resolve"),
    "signl4": (TOKEN, "X-S4-ExternalID", "X-S4-Status", "", "resolved"),
    "pagertree": ("int_abcdefghij", "id", "event_type", "create", "resolve"),
    "splunk": (f"routing@{TOKEN}", "entity_id", "message_type", "CRITICAL", "RECOVERY"),
    "firehydrant": (TOKEN, "idempotency_key", "status", "OPEN", "CLOSED"),
}
URLS = {name: f"{name}://{rest}" for name, (rest, *_) in SERVICES.items()}
ACCEPTED = (202, b'{"requestId": "43a29c5c-3dbf-4fa4-9c26-f4f71023e120"}')
ANSWERS = {"api.opsgenie.com": ACCEPTED, "api.atlassian.com": ACCEPTED, "events.pagerduty.com": (202, b"{}")}


def told(transition: Transition, event_type: str = "Reboot", incident: str = KEY) -> Message:
    return replace(message(transition, type=event_type), incident=incident)


def tell(url: str, *messages: AnyMessage, **fields: Any) -> list[Delivery]:
    child = Child(lambda _: None)
    return [send(one, url, child=child, **fields) for one in messages]


def states(service: str, requests: list[Request]) -> list[tuple[str, str]]:
    _, key, action, *_ = SERVICES[service]
    return [(request.json[key], request.json.get(action, "")) for request in requests]


LIFE = (Transition.SCHEDULED, Transition.APPROVED, Transition.UPDATED, Transition.STARTED)


@pytest.mark.parametrize("service", URLS)
@pytest.mark.parametrize("end", [Transition.COMPLETED, Transition.VANISHED])
def test_one_incident_per_event(proxy: TlsProxy, service: str, end: Transition) -> None:
    """All messages of a life have one key; the end closes it, whatever its severity, and only the end."""
    found = tell(URLS[service], *map(told, (*LIFE, end)))
    assert all(one.delivered for one in found)
    *_, opens, closes = SERVICES[service]
    got = states(service, proxy.requests)
    assert [key for key, _ in got] == [KEY] * (len(LIFE) + 1)
    assert got[-1][1] == closes
    assert all(action != closes for _, action in got[:-1])
    if service != "splunk":
        assert all(action == opens for _, action in got[:-1])


def test_what_is_never_graver_than_info_is_no_incident(proxy: TlsProxy) -> None:
    """A Freeze is one only once a hook has failed for it; an approval opens none."""
    url = URLS["pagerduty"]
    life = (Transition.SCHEDULED, Transition.STARTED, Transition.COMPLETED, Transition.VANISHED)
    found = tell(url, *(told(one, "Freeze") for one in life), is_open=False)
    found += tell(url, told(Transition.APPROVED), is_open=False)
    assert [one.skipped for one in found] == [True] * 5
    failed = told(Transition.HOOK_FAILED, "Freeze")
    end = told(Transition.COMPLETED, "Freeze")
    end = replace(end, event=replace(end.event, transitions=(TransitionRecord(Transition.HOOK_FAILED, NOW),)))
    tell(url, failed, end, is_open=False)
    assert states("pagerduty", proxy.requests) == [(KEY, "trigger"), (KEY, "resolve")]


def test_a_service_with_others_behind_a_tag(build: Build, proxy: TlsProxy, tmp_path: Path) -> None:
    """What the others get opens no incident of a Freeze; that of a Reboot is noted on and closed."""
    with http_receiver() as receiver:
        file = tmp_path / "apprise.yml"
        urls = (URLS["pagerduty"], f"json://{receiver.authority}/")
        file.write_text("urls:\n" + "".join(f"  - {url}: [{{tag: both}}]\n" for url in urls))
        bench = build(
            f"notifications: {{apprise_config: {file}, targets: [{{name: oncall, tag: both}}]}}",
            real_senders=True,
        )
        for event_type in ("Freeze", "Reboot"):
            own = raw_event(EventId=event_type, EventType=event_type, Resources=[VM], NotBefore="")
            bench.show(own, wait=10)
            bench.show(own | {"EventStatus": "Started"}, wait=10)
            bench.show(wait=10)
    assert len(receiver.requests) == 6
    actions = ["trigger", "trigger", "resolve"]
    assert states("pagerduty", proxy.requests) == [(f"Reboot/{VM}", action) for action in actions]


def test_goalert_has_a_server_of_its_own() -> None:
    """Its messages are like those of the others."""
    with http_receiver() as receiver:
        url = f"goalert://{receiver.authority}/{REBOOT_ID}"
        tell(url, told(Transition.SCHEDULED), told(Transition.COMPLETED))
    bodies = [request.json for request in receiver.requests]
    assert [(body["dedup"], body.get("action")) for body in bodies] == [(KEY, None), (KEY, "close")]


@pytest.mark.parametrize("service", ["opsgenie", "jira"])
def test_services_that_close_what_they_opened(proxy: TlsProxy, service: str, tmp_path: Path) -> None:
    """An alert is opened, noted on and closed, by whichever child; without one nothing is sent."""
    children = [Child(lambda _: None) for _ in range(2)]

    def skipped(*life: Message) -> list[bool]:
        return [
            send(one, f"{service}://{TOKEN}", child=child, storage=str(tmp_path / "apprise")).skipped
            for one, child in zip(life, itertools.cycle(children))  # endless
        ]

    life = (Transition.SCHEDULED, Transition.APPROVED, Transition.STARTED, Transition.COMPLETED)
    other = [told(one, "Freeze", "other/vm_0") for one in (life[0], life[-1])]
    assert skipped(*other, *map(told, life), *other) == [*[True] * 2, *[False] * 4, *[True] * 2]
    actions = [re.sub(r".*/v2/alerts(/[^/?]*)?/?(\w*).*", r"\2", one.path) for one in proxy.requests]
    assert actions == ["", "notes", "", "close"]
    assert [one.json.get("alias") for one in proxy.requests] == [KEY, None, KEY, None]


@pytest.mark.parametrize(
    ("service", "rest", "state"),
    [
        ("pagerduty", "?dedup=mine&action=trigger", ("mine", "trigger")),
        ("splunk", "/mine", ("mine", "RECOVERY")),
    ],
)
def test_what_the_url_says_comes_first(
    proxy: TlsProxy, service: str, rest: str, state: tuple[str, str]
) -> None:
    """A key or an action of the URL stays."""
    tell(URLS[service] + rest, told(Transition.COMPLETED))
    assert states(service, proxy.requests) == [state]


def test_the_watch_is_an_incident_of_its_own(proxy: TlsProxy) -> None:
    """Blind opens it, recovered closes it."""
    outage = WatchMessage("oncall", "outage", 1, WatchChange.BLIND, NOW, "vm_0", NOW, incident="watch/vm_0")
    over = WatchMessage("oncall", "outage", 2, WatchChange.RECOVERED, NOW, "vm_0", NOW, incident="watch/vm_0")
    tell(URLS["pagerduty"], outage, over)
    assert states("pagerduty", proxy.requests) == [("watch/vm_0", "trigger"), ("watch/vm_0", "resolve")]
