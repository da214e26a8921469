"""Documents of up to 8 MiB that are made to cost: each is refused or cut, soon, and in few words."""

import json
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from exporter.errors import ImdsError
from exporter.model.documents import MOST_BYTES, decode_document
from exporter.model.messages import Delivery
from exporter.transport import BODY_LIMIT
from tests.bench import Build
from tests.builders import FREEZE_ID, REBOOT_ID, raw_event
from tests.memory import traced

# A hundredfold of what it takes here; what grows with the square of the input would take hours.
SOON_SECONDS = 5.0
ROOM = BODY_LIMIT - 1000


def events(*found: Any) -> bytes:
    """Return a document without spaces, so that most goes into 8 MiB."""
    return json.dumps({"DocumentIncarnation": 1, "Events": found}, separators=(",", ":")).encode()


def junk(item: bytes, count: int) -> bytes:
    """Return a document that lists the same nonsense many times."""
    return b'{"DocumentIncarnation":1,"Events":[' + b",".join([item] * count) + b"]}"


# Made where they are used: they are large.
REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "brackets": (lambda: b"[" * BODY_LIMIT, "Expected `object`, got `array`"),
    "braces": (lambda: b'{"a":' * (BODY_LIMIT // 5), "maximum recursion depth exceeded"),
    "brackets in an event": (
        lambda: junk(b'{"EventId":' + b"[" * 10**6 + b"]" * 10**6 + b"}", 1),
        "recursion depth",
    ),
    "four million numbers": (lambda: junk(b"1", BODY_LIMIT // 2 - 20), "more than 400000 values"),
    "three million empty events": (lambda: junk(b"{}", BODY_LIMIT // 3 - 20), "more than 400000 values"),
    "a million names": (lambda: events(raw_event(Resources=["a"] * 10**6)), "more than 400000 values"),
    "over 1,000 that cannot be read": (
        lambda: events(*[1] * 1000, {"EventId": "last"}),
        "over 1000 events cannot be read: event last: Object missing required field",
    ),
    "an incarnation of 8 MiB": (
        lambda: b'{"DocumentIncarnation":' + b"9" * ROOM + b',"Events":[]}',
        "its DocumentIncarnation has 8387608 bytes",
    ),
    "spaces": (lambda: b" " * BODY_LIMIT, "truncated"),
    "lone surrogates, badly nested": (lambda: b'{"a":"\\ud800","b":' + b"[" * 10**6, "not a document"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_made_to_cost_is_refused_at_once(name: str) -> None:
    """Before it has cost time or memory, with a message that fits a line."""
    make, reason = REFUSED[name]
    document = make()
    begun = time.thread_time()
    with pytest.raises(ImdsError) as caught:
        decode_document(document)
    assert time.thread_time() - begun < SOON_SECONDS
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 200


ENDLESS = "x" * ROOM
LONG = "x" * 250_000
WITHOUT_FIELD: list[tuple[dict[str, Any], str]] = [
    ({"EventStatus": LONG}, "EventStatus: 'xxxx"),
    ({"Resources": [LONG]}, "Resources: ['xxxx"),
    ({"NotBefore": LONG}, "NotBefore: cut from 250000 to 256 characters"),
    ({"NotBefore": "(" * len(LONG)}, "NotBefore: cut"),
    ({"NotBefore": "Mon, " + "1 " * (len(LONG) // 2)}, "NotBefore: cut"),
    ({"DurationInSeconds": [[LONG]]}, "DurationInSeconds: [['xxxx"),
    ({"Description": LONG}, "Description: cut from 250000 to 2000 characters"),
    ({"Description": ENDLESS}, "Description: 8387610 bytes; 262144 are possible"),
    ({"Description": ENDLESS[:-6] + "\N{GRINNING FACE}"}, "Description: 8387616 bytes; 262144 are possible"),
    ({"Resources": [ENDLESS]}, "Resources: 8387612 bytes; 262144 are possible"),
    ({"DurationInSeconds": ["1"] * 300_000}, "DurationInSeconds: 1200001 bytes; 262144 are possible"),
    ({"Description": "\ud800" * (ROOM // 6)}, "Document: invalid Unicode was replaced"),
    ({"EventSource": LONG}, "EventSource: cut"),
    ({"ResourceType": LONG}, "ResourceType: cut"),
]


@pytest.mark.parametrize("name", ["EventId", "EventType"])
def test_an_event_with_an_endless_name_is_lost_alone(name: str) -> None:
    """An id or a type of 8 MiB would be a label of every scrape; its neighbour is not harmed."""
    found = decode_document(events(raw_event(EventId=REBOOT_ID), raw_event(**{name: ENDLESS})))
    assert [event.event_id for event in found.events] == [REBOOT_ID]
    assert [defect.lost for defect in found.defects] == [True]
    assert f"{name} has 8387610 bytes; 262144 are possible" in found.defects[0].message
    assert len(found.defects[0].message) < 200


@pytest.mark.parametrize(("odd", "problem"), WITHOUT_FIELD)
def test_an_endless_field_is_cut(odd: dict[str, Any], problem: str) -> None:
    """The event counts, its remaining data is small, and the defect names the field."""
    begun = time.thread_time()
    found = decode_document(events(raw_event(**odd)))
    assert time.thread_time() - begun < SOON_SECONDS
    assert problem in found.defects[0].message
    assert all(len(defect.message) < 300 for defect in found.defects)
    (event,) = found.events
    assert len(repr(event)) < 70_000


@pytest.mark.parametrize(
    ("odd", "most"),
    [
        ({"EventId": ENDLESS + "\N{GRINNING FACE}"}, 2),
        ({"Description": ENDLESS + "\N{GRINNING FACE}"}, 2),
        ({"Unknown": ["\N{GRINNING FACE}"] * 300_000}, 2),
        # What is not Unicode is replaced in a copy, twice.
        ({"Description": ENDLESS + "\N{GRINNING FACE}\ud800"}, 20),
        ({"Unknown": ["\N{GRINNING FACE}\ud800"] * 300_000}, 20),
    ],
)
def test_no_document_takes_many_times_its_size(odd: dict[str, Any], most: int) -> None:
    """Although Python's texts take four bytes for each character beside an emoji."""
    found = {"DocumentIncarnation": 1, "Events": [raw_event(), raw_event(EventId=REBOOT_ID) | odd]}
    document = json.dumps(found, ensure_ascii=False).encode(errors="backslashreplace")
    decoded, peak = traced(lambda: decode_document(document))
    assert decoded.events[0].event_id == FREEZE_ID
    assert peak < most * 2**20


def test_a_broken_eight_mebibytes_cost_one_line_of_the_log(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    """The poll fails as any other, what was known stays, and the next good document holds."""
    bench = build()
    bench.show(raw_event())
    caplog.clear()
    begun = time.thread_time()
    for count in (BODY_LIMIT // 2 - 20, 300_000):
        bench.simulator.set_document(junk(b"1", count))
        bench.advance(5)
    assert time.thread_time() - begun < SOON_SECONDS
    assert (bench.metric("polls_total", outcome="invalid_document") or 0) >= 2
    assert [record.message for record in caplog.records] == ["poll failed"] * 2
    assert len(bench.api("current")) == 1
    bench.show(raw_event(), wait=10)
    assert bench.metric("up") == 1


def test_a_document_of_many_events_is_cut(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """Ten thousand of Azure's events are kept, beside a thousand bad ones; fewer, if they are large."""
    assert len(decode_document(junk(b"1", 1000)).defects) == 1000
    azure = [raw_event(EventId=f"{number:036}") for number in range(10_000)]
    found = decode_document(events(*azure, azure[0] | {"Description": "again"}))
    assert (len(found.events), found.events[-1].description, found.defects) == (10_000, "again", ())
    wide = [raw_event(EventId=f"{number}", Description="\U0001f600" * 100_000) for number in range(20)]
    assert sum(event.size for event in decode_document(events(*wide)).events) < 20 * 9000
    large = [raw_event(EventId=f"{number}", Description="x" * 2000) for number in range(3000)]
    found = decode_document(events(*large))
    assert MOST_BYTES * 0.9 < sum(event.size for event in found.events) <= MOST_BYTES
    assert len(found.events) + len(found.defects) == 3000
    many = [raw_event(EventId=f"{number}", Resources=["WestNO_0"]) for number in range(20_000)]
    found = decode_document(events(*many))
    assert (len(found.events), len(found.defects)) == (10_000, 10_000)
    bench = build("notifications: {targets: [{name: oncall, url: 'json://receiver.test'}]}")
    bench.sender().answer = lambda _: Delivery(delivered=False, reason="down")
    bench.simulator.set_document(events(*many))
    bench.advance(2)
    lines = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert lines.count("event could not be decoded") == 10
    assert lines.count("more events could not be decoded") == 1
    assert bench.metric("notifications_pending") == 2000
    assert [one.__dict__["left_out"] for one in caplog.records if "too many" in one.getMessage()] == [8000]
