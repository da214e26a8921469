from datetime import UTC, datetime
from typing import Any

import pytest

from exporter.errors import ImdsError, PollOutcome
from exporter.model.documents import Defect, Document, decode_document
from exporter.model.events import ScheduledEvent
from tests.builders import ABSENT, FREEZE_ID, REBOOT_ID, body, raw_event, scheduled, started

GOOD = raw_event(EventId=REBOOT_ID, EventType="Reboot")
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def decoded(**fields: Any) -> ScheduledEvent:
    """Decode a document of one event without any defect, and return it."""
    found = decode_document(body(raw_event(**fields)))
    assert found.defects == ()
    (event,) = found.events
    return event


def beside_good(item: Any) -> tuple[tuple[ScheduledEvent, ...], tuple[Defect, ...]]:
    """Decode a document with something odd before a good event; return the other events, and the defects.

    A defect reads the same wherever the event stands, so that it is one when its neighbours change.
    """
    found = decode_document(body(item, GOOD))
    assert found.events[-1] == scheduled(event_id=REBOOT_ID, event_type="Reboot")
    assert found.defects == decode_document(body(GOOD, item)).defects == decode_document(body(item)).defects
    return found.events[:-1], found.defects


def test_the_documented_event_is_understood_whole() -> None:
    """Every field of API version 2020-07-01 arrives as the type that the rest of the program works with."""
    assert decode_document(body(raw_event(), incarnation=2)) == Document(2, (scheduled(),), ())


@pytest.mark.parametrize("lacking", range(4), ids=["2020-07-01", "2019-08-01", "2019-04-01", "2017-11-01"])
def test_old_api_versions_lack_fields(lacking: int) -> None:
    """A field that an API version does not have yet is blank, and nothing is wrong."""
    dropped = ("DurationInSeconds", "EventSource", "Description")[:lacking]
    blank = (("duration_seconds", None), ("event_source", ""), ("description", ""))[:lacking]
    assert decoded(**dict.fromkeys(dropped, ABSENT)) == scheduled(**dict(blank))


@pytest.mark.parametrize(
    "blank", ["", " ", None, ABSENT, "0001-01-01T00:00:00Z", "Mon, 01 Jan 0001 00:00:00 GMT"]
)
def test_not_before_is_blank_once_started(blank: Any) -> None:
    """A started event has no NotBefore, in whichever way Azure leaves it blank."""
    assert decoded(EventStatus="Started", NotBefore=blank) == started()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mon, 02 Jan 2026 03:04:05 GMT", AT),
        ("2 Jan 2026 03:04:05 -0000", AT),
        ("Fri, 02 Jan 2026 03:04:05", AT),
        ("Thu, 01 Jan 2026 22:04:05 EST", AT),
        ("Fri, 02 Jan 2026 04:04:05 +0100 (CET)", AT),
        ("2026-01-02T03:04:05Z", AT),
        ("2026-01-02T03:04:05", AT),
        ("2026-01-02T04:04:05+01:00", AT),
        (" 2026-01-02T03:04:05.0000000Z ", AT),
        ("2026-01-02t03:04:05z", AT),
        # A leap second, and the end of a day written as 24:00.
        ("2016-12-31T23:59:60Z", datetime(2017, 1, 1, tzinfo=UTC)),
        ("2026-01-02T24:00Z", datetime(2026, 1, 3, tzinfo=UTC)),
        ("Fri, 02 Jan 2026 24:00:00 GMT", datetime(2026, 1, 3, tzinfo=UTC)),
    ],
)
def test_not_before_in_every_spelling(text: str, expected: datetime) -> None:
    """RFC 1123, whatever its weekday says, and ISO 8601 give the same instant in UTC, without a defect."""
    found = decoded(NotBefore=text).not_before
    assert (found, found and found.tzinfo) == (expected, UTC)


@pytest.mark.parametrize(
    "text",
    [
        "soon",
        "2026-13-02T03:04:05Z",
        # Only the end of the day is 24:00, and only a second may be the 60th.
        "2026-01-02T24:00:30Z",
        "2026-01-02T03:60:00Z",
        "Fri, 02 Jan 2026 03:04:05 CEST",
        "Fri, 02 Jan 2026 03:04:05 GMT+0200",
        "Mon, ٠٤ Mar 2026 22:15:00 GMT",
        "Mon, 04 Mar 2_026 22:15:00 GMT",
    ],
)
def test_unreadable_not_before_costs_only_itself(text: str) -> None:
    """A NotBefore in no known format is left blank and reported; the event stays, in doubt."""
    message = f"event {FREEZE_ID}: NotBefore: {text!r} is not an RFC 1123 or ISO 8601 time"
    (event,), defects = beside_good(raw_event(NotBefore=text))
    assert event == scheduled(not_before=None, doubts=(message.partition(": ")[2],))
    assert event.not_before_unreadable
    assert defects == (Defect(FREEZE_ID, message, lost=False),)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0), (5.0, 5), ("9", 9), (-1, None), ("-1", None), ("", None)],
)
def test_durations(value: Any, expected: int | None) -> None:
    """0 is a duration; -1 and everything else that cannot be one is unknown."""
    assert decoded(DurationInSeconds=value).duration_seconds == expected


@pytest.mark.parametrize(
    ("field", "attribute", "written", "known"),
    [
        ("EventStatus", "event_status", "scheduled", "Scheduled"),
        ("EventStatus", "event_status", " STARTED", "Started"),
        ("EventType", "event_type", "Reboot ", "Reboot"),
        ("EventSource", "event_source", "USER", "User"),
    ],
)
def test_words_in_other_letters(field: str, attribute: str, written: str, known: str) -> None:
    """A known word that differs by case or blanks gets Azure's spelling, and is in doubt."""
    (event,), _ = beside_good(raw_event(**{field: written}))
    assert getattr(event, attribute) == known
    assert event.doubts == (f"{field}: {written!r} differs from {known} in case or blanks",)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"EventType": "Reboot"}, {}),
        ({"EventId": FREEZE_ID.lower()}, {}),
        ({}, {"DurationInSeconds": "1e999"}),
    ],
)
def test_entries_that_contradict_each_other(first: Any, second: Any) -> None:
    """Of entries with one id the last readable one is shown, in doubt unless they are the same."""
    text = body(raw_event(**first), raw_event(**second)).replace(b'"1e999"', b"1e999")
    (event,) = decode_document(text).events
    doubt = "EventId: the document has several entries with this id, which differ"
    assert event == scheduled(doubts=(doubt,))
    assert f"event {FREEZE_ID}: {doubt}" in [one.message for one in decode_document(text).defects]
    assert decode_document(body(raw_event(), raw_event())) == Document(1, (scheduled(),))


@pytest.mark.parametrize(
    ("written", "number"),
    [('"12"', 12), ('" 12 "', 12), ('"-3"', -3), ("0", 0), ("9223372036854775807", 2**63 - 1)],
)
def test_an_incarnation_in_quotes(written: str, number: int) -> None:
    """A quoted number is accepted, and so is one of 64 bits."""
    body = f'{{"DocumentIncarnation": {written}, "Events": []}}'
    assert decode_document(body.encode()) == Document(number)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("null", "is missing"),
        ('"twelve"', "'twelve' is not a whole number of 64 bits"),
        ("1.5", "1.5 is not a whole number of 64 bits"),
        ("true", "True is not a whole number of 64 bits"),
        ("9223372036854775808", "9223372036854775808 is not a whole number of 64 bits"),
        ("1e999", "'1e999' is not a whole number of 64 bits"),
    ],
)
def test_an_incarnation_that_cannot_be_read(written: str, problem: str) -> None:
    """The events count; that the number is missing is a defect, because it costs proofs."""
    body = f'{{"DocumentIncarnation": {written}, "Events": []}}'
    (defect,) = decode_document(body.encode()).defects
    assert decode_document(body.encode()) == Document(None, (), (defect,))
    expected = f"DocumentIncarnation: {problem}; no event is taken as cancelled"
    assert defect == Defect("", expected, lost=False)


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (None, "Expected `object`, got `null`"),
        ({}, "Object missing required field `EventId`"),
        (raw_event(EventId=7), "Expected `str`, got `int` - at `$.EventId`"),
        (raw_event(EventId=" "), "EventId is empty"),
        (raw_event(EventId="x" * 257), "EventId has 257 characters; 256 are possible"),
    ],
)
def test_a_bad_event_is_lost_alone(item: Any, problem: str) -> None:
    """An event without id is reported; its neighbour stays."""
    defect = Defect("", f"event without a readable id: {problem}", lost=True)
    assert beside_good(item) == ((), (defect,))


@pytest.mark.parametrize(
    ("field", "value", "left", "problem"),
    [
        ("EventType", ABSENT, {"event_type": "Unknown"}, "it is missing"),
        ("EventType", 7, {"event_type": "Unknown"}, "7 is not a type"),
        ("EventStatus", 3, {"event_status": "Unknown"}, "3 is not a status"),
        ("EventStatus", ABSENT, {"event_status": "Unknown"}, "it is missing"),
        ("DurationInSeconds", "PT9S", {"duration_seconds": None}, "'PT9S' is not a number of seconds"),
        ("DurationInSeconds", "٨", {"duration_seconds": None}, "'٨' is not a number of seconds"),
        ("DurationInSeconds", True, {"duration_seconds": None}, "True is not a number of seconds"),
        ("NotBefore", 1767323045, {"not_before": None}, "1767323045 is not text"),
        ("Description", {}, {"description": ""}, "{} is not text"),
        ("ResourceType", [], {"resource_type": ""}, "[] is not text"),
        ("Resources", "WestNO_0", {"resources": ("WestNO_0",)}, "'WestNO_0' is not a list of names"),
        ("Resources", [None, "b"], {"resources": ("b",)}, "[None, 'b'] is not a list of names"),
        ("Resources", {"a": 1}, {"resources": ()}, "{'a': 1} is not a list of names"),
        ("Resources", [""], {"resources": ()}, "[''] is not a list of names"),
        ("DurationInSeconds", 8.9, {"duration_seconds": 9}, "rounded up from 8.9"),
        ("DurationInSeconds", 1e12, {"duration_seconds": None}, "1000000000000.0 is not a number of seconds"),
    ],
)
def test_a_bad_field_is_lost_alone(field: str, value: Any, left: dict[str, Any], problem: str) -> None:
    """A field that makes no sense is left out as far as it must be, and reported; the event stays."""
    doubt = f"{field}: {problem}"
    defect = Defect(FREEZE_ID, f"event {FREEZE_ID}: {doubt}", lost=False)
    event = scheduled(**left, doubts=(doubt,))
    assert beside_good(raw_event(**{field: value})) == ((event,), (defect,))


@pytest.mark.parametrize(
    ("field", "longest", "longer", "problem"),
    [
        ("Description", "x" * 2000, "x" * 2001, "cut from 2001 to 2000 characters"),
        ("EventStatus", "x" * 256, "x" * 257, "'xxxxxxxxxxxx...xxxxxxxxxxxxx' is not a status"),
        ("EventType", "x" * 256, "x" * 257, "'xxxxxxxxxxxx...xxxxxxxxxxxxx' is not a type"),
        ("Resources", ["x" * 256], ["x" * 257], "['xxxxxxxxxxxx...xxxxxxxxxxxxx'] is not a list of names"),
        ("ResourceType", "x" * 256, "x" * 257, "cut from 257 to 256 characters"),
        ("DurationInSeconds", 3_999_999_999, 4_000_000_000, "4000000000 is not a number of seconds"),
    ],
)
def test_the_longest_fields(field: str, longest: Any, longer: Any, problem: str) -> None:
    """What is as long as it may be is read whole; what is longer is cut, left out and reported."""
    decoded(**{field: longest})
    (event,) = decode_document(body(raw_event(**{field: longer}))).events
    assert event.doubts == (f"{field}: {problem}",)
    # Without any name that can be read, the event counts as this VM's.
    assert event.resources == (() if field == "Resources" else scheduled().resources)


@pytest.mark.parametrize(("place", "target"), [(0, "self"), (999, "self"), (None, "other")])
def test_many_long_names(place: int | None, target: str) -> None:
    """Of 1,000 VMs with names of 80 characters some are left out, but not this VM, which knows its part."""
    names = [f"WestNO_{number:0>73}" for number in range(1000)]
    instance = "WESTNO_0" if place is None else names[place].upper()
    (event,) = decode_document(body(raw_event(Resources=names)), instance).events
    assert event.target(instance).value == target
    assert event.resources[:818] == tuple(names[:818])
    assert event.resources[818:] == ((names[999],) if place == 999 else (names[818],))
    assert event.doubts == ("Resources: cut from 1000 to 819 names",)
    whole = decode_document(body(raw_event(Resources=names[:819])), instance).events[0]
    assert (len(whole.resources), whole.doubts) == (819, ())


@pytest.mark.parametrize("broken", [rb"\ud800", rb"\udc00\ud800", b"\xff", b"\xed\xa0\x80"])
def test_what_is_no_unicode_is_replaced(broken: bytes) -> None:
    """An unpaired surrogate in a description loses neither that event nor any other."""
    whole = body(raw_event(Description="caf@"), GOOD)
    found = decode_document(whole.replace(b"@", broken))
    assert [event.event_id for event in found.events] == [FREEZE_ID, REBOOT_ID]
    assert found.events[0].description.rstrip("\N{REPLACEMENT CHARACTER}") == "caf"
    (defect,) = found.defects
    # The one in doubt is not approved.
    assert [event.doubts for event in found.events] == [(defect.message,), ()]
    assert (defect.event_id, defect.lost) == ("", False)
    assert defect.message.startswith("Document: invalid Unicode was replaced: ")


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (rb"\ud83d\ude00\ud800", "\N{GRINNING FACE}\N{REPLACEMENT CHARACTER}"),
        (rb"\ud83d\ud83d\ude00", "\N{REPLACEMENT CHARACTER}\N{GRINNING FACE}"),
        (rb"\\ud800\udc00", "\\ud800\N{REPLACEMENT CHARACTER}"),
        (rb"\n\u20ac\udc00\\", "\n\N{EURO SIGN}\N{REPLACEMENT CHARACTER}\\"),
        ("\u20ac".encode() * 30_000 + b"\xe2\x82", "\N{EURO SIGN}" * 2000),
    ],
)
def test_only_what_is_no_unicode_is_replaced(written: bytes, text: str) -> None:
    """Escaped backslashes, whole pairs, and characters at any place of the document stay as they are."""
    whole = body(raw_event(Description="@"), GOOD)
    assert decode_document(whole.replace(b"@", written)).events[0].description == text


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", "Input data was truncated"),
        (body(raw_event()) + b"x", "JSON is malformed: trailing characters"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"DocumentIncarnation": 1}', "Object missing required field `Events`"),
        (b'{"DocumentIncarnation": 1, "Events": {}}', "Expected `array`, got `object` - at `$.Events`"),
        (b'{"DocumentIncarnation": 1, "Events": ' + b"[" * 100_000, "it is nested too deeply"),
        (b"\xff" * 10, "it is not UTF-8 text: invalid start byte at byte 0"),
    ],
)
def test_what_is_no_document(answer: bytes, problem: str) -> None:
    """An answer without incarnation or list of events is refused, saying why."""
    with pytest.raises(ImdsError) as caught:
        decode_document(answer)
    assert str(caught.value).startswith(f"not a document of scheduled events: {problem}")
    assert caught.value.reason is PollOutcome.INVALID_DOCUMENT
