"""Which targets get which messages, by the routes of the configuration, and with which key."""

import json
from typing import Any

import pytest

from exporter.config.addresses import NotifyUrls
from tests.bench import Bench, Build
from tests.bench.bench import start_nameless
from tests.builders import FREEZE_ID, REBOOT_ID, raw_event

FREEZES = {"targets": ["chat"], "match": {"event_types": ["Freeze"]}}
ALL = {"targets": ["log", "chat"], "match": {"target": "any"}}
OTHERS = {"targets": ["log"], "match": {"target": "other"}}
# A Freeze of this VM, and a Reboot of another one.
BOTH = (raw_event(), raw_event(EventId=REBOOT_ID, EventType="Reboot", Resources=["WestNO_9"]))


def routed(*routes: dict[str, Any]) -> str:
    targets = [{"name": name, "url": f"json://{name}.test"} for name in ("log", "chat")]
    return json.dumps({"notifications": {"targets": targets, "routes": routes}})


def told(bench: Bench) -> list[str]:
    """Return the types of the events of the messages of each target, in the order of the targets' names."""
    return [
        " ".join(title.split()[1] for title in sender.titles)
        for _, sender in sorted(bench.senders.targets.items())
    ]


@pytest.mark.parametrize(
    ("routes", "chat", "log"),
    [
        ([], "Freeze", "Freeze"),
        ([FREEZES], "Freeze", ""),
        ([ALL], "Reboot Freeze", "Reboot Freeze"),
        ([FREEZES, ALL], "Reboot Freeze", "Reboot Freeze"),
        ([FREEZES, OTHERS], "Freeze", "Reboot"),
    ],
)
def test_who_gets_what(build: Build, routes: list[dict[str, Any]], chat: str, log: str) -> None:
    """Every route that matches delivers, once to each target; so does --notify, as targets without routes."""
    bench = build(routed(*routes), notify=NotifyUrls(("json://flag.test",)))
    for name in ("log", "chat"):
        bench.sender(name)
    bench.show(*BOTH, wait=5)
    assert told(bench) == [chat, log, "Freeze"]


@pytest.mark.parametrize(
    ("routes", "key"),
    [
        ([{"targets": ["chat"]}], FREEZE_ID),
        ([FREEZES, ALL | {"match": {"target": "any", "event_types": ["Reboot"]}}], f"{FREEZE_ID}/WestNO_0"),
    ],
)
def test_the_key_of_an_incident(build: Build, routes: list[dict[str, Any]], key: str) -> None:
    """It has the VM's name, unless that was unknown at first, or a route for this type is about other VMs."""
    bench = start_nameless(build, routed(*routes)) if key == FREEZE_ID else build(routed(*routes))
    bench.show(raw_event(), wait=5)
    bench.simulator.set_fault(None)
    bench.advance(15)
    bench.show(wait=5)
    found = [(one.incident, one.resolves) for one in bench.sent("chat")]
    assert found == [(key, False), (key, True)]


@pytest.mark.parametrize(
    ("name", "resources", "is_told"),
    [
        ("westno_0", ["WestNO_0", "WestNO_1"], True),
        ("WestNO_1", ["WestNO_0", "WestNO_1"], False),
        ("WestNO_1", [], True),
        (None, ["WestNO_0", "WestNO_1"], True),
    ],
)
def test_the_first_vm_tells_for_all(
    build: Build, name: str | None, resources: list[str], is_told: bool
) -> None:
    """With ``leader: first`` twenty VMs send one message; in doubt each sends its own."""
    text = routed({"targets": ["chat"], "leader": "first"})
    bench = build(text, instance_name=name) if name else start_nameless(build, text)
    bench.show(raw_event(Resources=resources), wait=5)
    assert bool(bench.sent("chat")) is is_told
