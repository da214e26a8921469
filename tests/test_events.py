"""Tests of `exporter.events`: every shape in which documents have been seen, and those nobody has seen."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from exporter.errors import InvalidDocumentError, PollOutcome
from exporter.events import (
    Defect,
    Document,
    ScheduledEvent,
    decode_document,
    parse_time,
)
from tests.builders import ABSENT, FREEZE_ID, REBOOT_ID, body, raw_event, scheduled, started

GOOD = raw_event(EventId=REBOOT_ID, EventType="Reboot")
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def decoded(**fields: Any) -> ScheduledEvent:
    """Decode a document of one event without any defect, and give it."""
    found = decode_document(body(raw_event(**fields)))
    assert found.defects == ()
    (event,) = found.events
    return event


def beside_good(item: Any) -> tuple[tuple[ScheduledEvent, ...], tuple[Defect, ...]]:
    """Decode a document with something odd before a good event; give the other events, and the defects."""
    found = decode_document(body(item, GOOD))
    assert found.events[-1] == scheduled(event_id=REBOOT_ID, event_type="Reboot")
    return found.events[:-1], found.defects


def test_the_documented_event_is_understood_whole() -> None:
    """Every field of API version 2020-07-01 arrives as the type that the rest of the program works with."""
    assert decode_document(body(raw_event(), incarnation=2)) == Document(2, (scheduled(),), ())


@pytest.mark.parametrize(
    ("dropped", "blank"),
    [
        ((), {}),
        (("DurationInSeconds",), {"duration_seconds": None}),
        (("DurationInSeconds", "EventSource"), {"duration_seconds": None, "event_source": ""}),
        (
            ("DurationInSeconds", "EventSource", "Description"),
            {"duration_seconds": None, "event_source": "", "description": ""},
        ),
    ],
    ids=["2020-07-01", "2019-08-01", "2019-04-01", "2017-11-01"],
)
def test_old_api_versions_lack_fields(dropped: tuple[str, ...], blank: dict[str, Any]) -> None:
    """A field that an API version does not have yet is blank, and nothing is wrong."""
    assert decoded(**dict.fromkeys(dropped, ABSENT)) == scheduled(**blank)


@pytest.mark.parametrize("nothing", [None, ABSENT])
def test_null_and_absent_fields_are_blank(nothing: Any) -> None:
    """Whatever is not needed to know an event may be null or absent."""
    fields = ("ResourceType", "Resources", "NotBefore", "Description", "EventSource", "DurationInSeconds")
    assert decoded(**dict.fromkeys(fields, nothing)) == ScheduledEvent(FREEZE_ID, "Freeze", "Scheduled")


@pytest.mark.parametrize("blank", ["", " ", None, ABSENT])
def test_not_before_is_blank_once_started(blank: Any) -> None:
    """A started event has no NotBefore, in whichever way Azure leaves it blank."""
    assert decoded(EventStatus="Started", NotBefore=blank) == started()


@pytest.mark.parametrize(
    "text",
    [
        "Fri, 02 Jan 2026 03:04:05 GMT",
        "Mon, 02 Jan 2026 03:04:05 GMT",
        "02 Jan 2026 03:04:05 GMT",
        "Fri, 02 Jan 2026 04:04:05 +0100",
        "Fri, 02 Jan 2026 03:04:05 -0000",
        "Fri, 02 Jan 2026 03:04:05",
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:04:05",
        "2026-01-02 03:04:05",
        "2026-01-02T04:04:05+01:00",
        " 2026-01-02T03:04:05.0000000Z ",
    ],
)
def test_not_before_in_every_spelling(text: str) -> None:
    """RFC 1123, whatever its weekday says, and ISO 8601 give the same instant in UTC."""
    found = decoded(NotBefore=text).not_before
    assert (found, found and found.tzinfo) == (AT, UTC)


@pytest.mark.parametrize(
    "text",
    [
        "soon",
        "-",
        "2026-13-02T03:04:05Z",
        "Fri, 32 Jan 2026 03:04:05 GMT",
        "0001-01-01T00:00:00+14:00",
        "\N{ARABIC-INDIC DIGIT ONE}-1",
    ],
)
def test_unreadable_not_before_costs_only_itself(text: str) -> None:
    """A NotBefore that is no time is left blank and reported; the event stays."""
    message = f"event {FREEZE_ID}: NotBefore: {text!r} is no RFC 1123 or ISO 8601 time"
    expected = (scheduled(not_before=None),), (Defect(FREEZE_ID, message, lost=False),)
    assert beside_good(raw_event(NotBefore=text)) == expected


def test_parse_time_says_what_is_wrong() -> None:
    """Whoever reads a time from elsewhere gets a ValueError that quotes it, shortened."""
    with pytest.raises(ValueError, match=r"^'x{80}' is no RFC 1123 or ISO 8601 time$"):
        parse_time("x" * 1000)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (9, 9),
        (30, 30),
        (5.0, 5),
        ("9", 9),
        (-1, None),
        ("-1", None),
        ("", None),
        (-7, None),
        (1e12, None),
    ],
)
def test_durations(value: Any, expected: int | None) -> None:
    """0 is a duration; -1, and whatever else cannot be one, is unknown."""
    assert decoded(DurationInSeconds=value).duration_seconds == expected


@pytest.mark.parametrize("event_type", ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate", "Teleport"])
@pytest.mark.parametrize("status", ["Scheduled", "Started", "Completed"])
def test_types_and_statuses_of_the_future(event_type: str, status: str) -> None:
    """A type or a status that Azure adds one day passes as it is written."""
    found = decoded(EventType=event_type, EventStatus=status)
    assert (found.event_type, found.event_status) == (event_type, status)


def test_fields_of_the_future_are_ignored() -> None:
    """A field that Azure adds one day changes nothing."""
    assert decoded(Severity={"Level": [1]}) == scheduled()


def test_ids_are_kept_as_written_and_compared_without_case() -> None:
    """The same GUID in either case is one event, shown as Azure wrote it."""
    upper, lower = decoded(EventId=FREEZE_ID.upper()), decoded(EventId=FREEZE_ID.lower())
    assert upper.event_id != lower.event_id
    assert upper.key == lower.key


def test_of_two_events_with_one_id_the_last_holds() -> None:
    """A repeated id, in whatever case, gives one event: the last, in its place."""
    again = raw_event(EventId=FREEZE_ID.lower(), EventStatus="Started", NotBefore="")
    found = decode_document(body(raw_event(), GOOD, again))
    assert [event.event_id for event in found.events] == [REBOOT_ID, FREEZE_ID.lower()]
    assert found.events[1] == started(event_id=FREEZE_ID.lower())


@pytest.mark.parametrize("events", [[], None])
def test_an_idle_vm(events: Any) -> None:
    """Incarnation 0 with no events, the list empty or null, is a document."""
    assert decode_document(json.dumps({"DocumentIncarnation": 0, "Events": events}).encode()) == Document(0)


def test_a_byte_order_mark_is_passed_over() -> None:
    """A mark before the JSON is no part of it."""
    assert decode_document(b"\xef\xbb\xbf" + body(raw_event())) == Document(1, (scheduled(),))


@pytest.mark.parametrize(
    ("item", "event_id", "problem"),
    [
        (None, "", "Expected `object`, got `null`"),
        ("Freeze", "", "Expected `object`, got `str`"),
        ([], "", "Expected `object`, got `array`"),
        ({}, "", "Object missing required field `EventId`"),
        (raw_event(EventId=ABSENT), "", "Object missing required field `EventId`"),
        (raw_event(EventId=None), "", "Expected `str`, got `null` - at `$.EventId`"),
        (raw_event(EventId=7), "", "Expected `str`, got `int` - at `$.EventId`"),
        (raw_event(EventId=" "), "", "EventId is empty"),
        (raw_event(EventType=ABSENT), FREEZE_ID, "Object missing required field `EventType`"),
        (raw_event(EventType=""), FREEZE_ID, "EventType is empty"),
        (raw_event(EventStatus=3), FREEZE_ID, "Expected `str`, got `int` - at `$.EventStatus`"),
        (raw_event(EventStatus=None), FREEZE_ID, "Expected `str`, got `null` - at `$.EventStatus`"),
    ],
)
def test_a_bad_event_is_lost_alone(item: Any, event_id: str, problem: str) -> None:
    """An event without id, type or status is reported, with its id where readable; its neighbour stays."""
    message = f"event {event_id or 'number 0'}: {problem}"
    assert beside_good(item) == ((), (Defect(event_id, message, lost=True),))


@pytest.mark.parametrize(
    ("field", "value", "left", "problem"),
    [
        ("DurationInSeconds", "PT9S", {"duration_seconds": None}, "'PT9S' is no number of seconds"),
        ("DurationInSeconds", True, {"duration_seconds": None}, "True is no number of seconds"),
        ("DurationInSeconds", [9], {"duration_seconds": None}, "[9] is no number of seconds"),
        ("NotBefore", 1767323045, {"not_before": None}, "1767323045 is no text"),
        ("Description", {}, {"description": ""}, "{} is no text"),
        ("EventSource", 1, {"event_source": ""}, "1 is no text"),
        ("ResourceType", [], {"resource_type": ""}, "[] is no text"),
        ("Resources", "WestNO_0", {"resources": ("WestNO_0",)}, "'WestNO_0' is no list of names"),
        ("Resources", [None, "b"], {"resources": ("b",)}, "[None, 'b'] is no list of names"),
        ("Resources", [None], {"resources": ()}, "[None] is no list of names"),
        ("Resources", {"a": 1}, {"resources": ()}, "{'a': 1} is no list of names"),
    ],
)
def test_a_bad_field_is_lost_alone(field: str, value: Any, left: dict[str, Any], problem: str) -> None:
    """A field that makes no sense is left out as far as it must be, and reported; the event stays."""
    defect = Defect(FREEZE_ID, f"event {FREEZE_ID}: {field}: {problem}", lost=False)
    assert beside_good(raw_event(**{field: value})) == ((scheduled(**left),), (defect,))


def test_nonsense_of_any_depth_is_described() -> None:
    """A field of lists within lists is reported in few words, however deep the decoder went."""
    deep = b"[" * 900 + b"]" * 900
    found = decode_document(body(raw_event(Description=None)).replace(b"null", deep))
    assert found.events == (scheduled(description=""),)
    assert len(found.defects[0].message) < 200


def test_a_defect_reads_the_same_wherever_the_event_stands() -> None:
    """What is wrong with one event does not read as news because its neighbours come and go."""
    bad = raw_event(EventType=None)
    assert decode_document(body(bad)).defects == decode_document(body(GOOD, bad)).defects


@pytest.mark.parametrize("broken", [rb"\ud800", rb"\udc00\ud800", b"\xff", b"\xed\xa0\x80"])
def test_what_is_no_unicode_is_replaced(broken: bytes) -> None:
    """Half a character in one description loses neither that event nor any other."""
    whole = body(raw_event(Description="caf@"), GOOD)
    found = decode_document(whole.replace(b"@", broken))
    assert [event.event_id for event in found.events] == [FREEZE_ID, REBOOT_ID]
    assert found.events[0].description.rstrip("?\N{REPLACEMENT CHARACTER}") == "caf"
    (defect,) = found.defects
    assert (defect.event_id, defect.lost) == ("", False)
    assert defect.message.startswith("what is no Unicode was replaced: ")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", "Input data was truncated"),
        (b"<html>busy</html>", "JSON is malformed: invalid character (byte 0)"),
        (body(raw_event())[:-1], "Input data was truncated"),
        (body(raw_event()) + b"x", "JSON is malformed: trailing characters"),
        (b"null", "Expected `object`, got `null`"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "Object missing required field `DocumentIncarnation`"),
        (b'{"DocumentIncarnation": 1}', "Object missing required field `Events`"),
        (b'{"Events": []}', "Object missing required field `DocumentIncarnation`"),
        (body(incarnation=None), "Expected `int`, got `null` - at `$.DocumentIncarnation`"),
        (body(incarnation="1"), "Expected `int`, got `str` - at `$.DocumentIncarnation`"),
        (body(incarnation=1.5), "Expected `int`, got `float` - at `$.DocumentIncarnation`"),
        (body(incarnation=2**63), "Expected `int` <= 9223372036854775807 - at `$.DocumentIncarnation`"),
        (
            b'{"DocumentIncarnation": 1, "Events": {}}',
            "Expected `array | null`, got `object` - at `$.Events`",
        ),
        (b'{"DocumentIncarnation": NaN, "Events": []}', "JSON is malformed: invalid character"),
        (b'{"DocumentIncarnation": 1, "Events": ' + b"[" * 100_000, "maximum recursion depth exceeded"),
        (b"\xff" * 10, "'utf-8' codec can't decode byte 0xff in position 0"),
    ],
)
def test_what_is_no_document(answer: bytes, problem: str) -> None:
    """An answer without incarnation or list of events is refused, saying why."""
    with pytest.raises(InvalidDocumentError) as caught:
        decode_document(answer)
    assert str(caught.value).startswith(f"no document of scheduled events: {problem}")
    assert caught.value.reason is PollOutcome.INVALID_DOCUMENT
