"""Documents of up to 1 MiB that are made to cost: each is refused or cut, soon, and in few words."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from exporter.errors import ImdsError
from exporter.model.documents import MOST_EVENTS, decode_document
from exporter.transport import BODY_LIMIT
from tests.bench import Build
from tests.builders import FREEZE_ID, REBOOT_ID, raw_event
from tests.memory import traced

# A hundredfold of what it takes here; what grows with the square of the input would take hours.
SOON_SECONDS = 5.0
ROOM = BODY_LIMIT - 1000


def events(*found: Any) -> bytes:
    """Return a document without spaces, so that most goes into 1 MiB."""
    return json.dumps({"DocumentIncarnation": 1, "Events": found}, separators=(",", ":")).encode()


def junk(item: bytes, count: int) -> bytes:
    """Return a document that lists the same nonsense many times."""
    return b'{"DocumentIncarnation":1,"Events":[' + b",".join([item] * count) + b"]}"


# Made where they are used: they are large.
REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "brackets": (lambda: b"[" * BODY_LIMIT, "Expected `object`, got `array`"),
    "braces": (lambda: b'{"a":' * (BODY_LIMIT // 5), "nested too deeply"),
    "brackets in an event": (
        lambda: junk(b'{"EventId":' + b"[" * 10**5 + b"]" * 10**5 + b"}", 1),
        "nested too deeply",
    ),
    "half a million numbers": (lambda: junk(b"1", BODY_LIMIT // 2 - 20), "more than 100000 values"),
    "names": (lambda: events(raw_event(Resources=["a"] * 10**5)), "more than 100000 values"),
    "lone surrogates, badly nested": (lambda: b'{"a":"\\ud800","b":' + b"[" * 10**5, "not a document"),
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
    ({"NotBefore": LONG}, "NotBefore: cut from 250000 to 256 characters"),
    ({"NotBefore": "Mon, " + "1 " * (len(LONG) // 2)}, "NotBefore: cut"),
    ({"DurationInSeconds": [[LONG]]}, "DurationInSeconds: [['xxxx"),
    ({"Description": ENDLESS}, f"Description: cut from {ROOM} to 2000 characters"),
    ({"Description": ENDLESS[:-6] + "\N{GRINNING FACE}"}, f"Description: cut from {ROOM - 5} to 2000"),
    ({"Resources": [ENDLESS]}, "Resources: ['xxxx"),
    ({"DurationInSeconds": ["1"] * 90_000}, "DurationInSeconds: ['1', '1'"),
    ({"Description": "\ud800" * (ROOM // 6 - 10)}, "Document: invalid Unicode was replaced"),
]


def test_an_incarnation_of_a_million_digits_is_not_used() -> None:
    """It costs nothing but itself."""
    document = b'{"DocumentIncarnation":' + b"9" * ROOM + b',"Events":[]}'
    found = decode_document(document)
    assert found.incarnation is None
    assert "is not a whole number of 64 bits" in found.defects[0].message
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
    "odd",
    [
        {"EventId": ENDLESS + "\N{GRINNING FACE}"},
        {"Description": ENDLESS + "\N{GRINNING FACE}"},
        {"Unknown": ["\N{GRINNING FACE}"] * 90_000},
        {"Resources": [f"{number:03}" for number in range(1000)] * 95},
        # What is not Unicode is replaced in a copy, twice.
        {"Description": ENDLESS + "\N{GRINNING FACE}\ud800"},
        {"Unknown": ["\N{GRINNING FACE}\ud800"] * 60_000},
    ],
)
def test_no_document_takes_many_times_its_size(odd: dict[str, Any]) -> None:
    """Although Python's texts take four bytes for each character beside an emoji."""
    found = {"DocumentIncarnation": 1, "Events": [raw_event(), raw_event(EventId=REBOOT_ID) | odd]}
    document = json.dumps(found, ensure_ascii=False).encode(errors="backslashreplace")
    decoded, peak = traced(lambda: decode_document(document))
    assert decoded.events[0].event_id == FREEZE_ID
    assert peak < 16 * 2**20


def test_a_broken_mebibyte_costs_one_line_of_the_log(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    """The poll fails as any other, what was known stays, and the next good document holds."""
    bench = build()
    bench.show(raw_event())
    caplog.clear()
    begun = time.thread_time()
    for broken in (junk(b"1", BODY_LIMIT // 2 - 20), b"[" * BODY_LIMIT):
        bench.simulator.set_document(broken)
        bench.advance(5)
    assert time.thread_time() - begun < SOON_SECONDS
    assert (bench.metric("polls_total", outcome="invalid_document") or 0) >= 2
    assert [record.message for record in caplog.records] == ["poll failed"] * 2
    assert len(bench.api("current")) == 1
    bench.show(raw_event(), wait=10)
    assert bench.metric("up") == 1


def test_of_too_many_events_those_of_this_vm_count_first(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    """Of 1,200 events the last one, this VM's, counts; one that no longer does is not gone."""
    others = [raw_event(EventId=f"{number:036}", Resources=["other"]) for number in range(1199)]
    bench = build("metrics: {events: all}")
    bench.show(others[1198])
    bench.show(*others, raw_event())
    ids = {event["id"] for event in bench.api("current")}
    assert ids == {event["EventId"] for event in (*others[: MOST_EVENTS - 1], others[1198], raw_event())}
    assert bench.api("past") == []
    lines = [record.__dict__["problem"] for record in caplog.records if "be decoded" in record.message]
    assert lines == ["more than 1000 events: only those of this VM, and then the first ones, count"]
    assert bench.metric("degraded", reason="invalid_event") == 1
    bench.show(raw_event())
    assert bench.metric("degraded", reason="invalid_event") == 0
    assert len(bench.api("current")) == 1


def test_the_events_that_count_are_the_first_while_the_name_is_unknown() -> None:
    """Each may be this VM's; nonsense is never, and a left-out event without an id may be any."""
    many = [raw_event(EventId=str(number), Resources=["other"]) for number in range(1000)]
    found = decode_document(events(*many, raw_event()))
    assert [event.event_id for event in found.events] == [str(number) for number in range(1000)]
    assert found.left_out == {FREEZE_ID.lower()}
    found = decode_document(events(*[1] * 1000, *many), "other")
    assert [event.event_id for event in found.events] == [str(number) for number in range(1000)]
    assert found.left_out == {""}
    assert [defect.lost for defect in found.defects] == [True]
