"""Tests of `exporter.model.documents` with whatever hypothesis thinks of."""

import json
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from exporter.errors import ImdsError
from exporter.model.documents import decode_document
from tests.builders import REBOOT_ID, body, raw_event, scheduled

GOOD = raw_event(EventId=REBOOT_ID, EventType="Reboot")
thorough = settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])


def decodes_or_is_refused(answer: bytes) -> None:
    """Decode, and accept only the one exception that is promised."""
    try:
        found = decode_document(answer)
    except ImdsError:
        return
    keys = [event.key for event in found.events]
    assert len(keys) == len(set(keys))
    assert all(event.event_id.strip() and event.event_type and event.event_status for event in found.events)
    assert all(len(defect.message) < 1000 + len(defect.event_id) for defect in found.defects)


@given(st.binary())
@example(b"\xef\xbb\xbf")
@thorough
def test_any_bytes_decode_or_are_refused(answer: bytes) -> None:
    """No sequence of bytes raises anything but ImdsError."""
    decodes_or_is_refused(answer)


surrogates_too = st.text(st.characters(exclude_categories=()), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | surrogates_too,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(surrogates_too, inner, max_size=3),
    max_leaves=5,
)
odd_events = st.dictionaries(st.sampled_from(sorted(raw_event())), values).map(lambda odd: raw_event(**odd))
odd_documents = st.fixed_dictionaries(
    {},
    optional={
        "DocumentIncarnation": st.integers() | values,
        "Events": st.lists(odd_events | values) | values,
    },
)


@given(values | odd_documents, st.booleans())
@thorough
def test_any_json_decodes_or_is_refused(content: Any, ascii_only: bool) -> None:
    """No JSON raises anything but ImdsError, whatever it has in place of the fields."""
    decodes_or_is_refused(json.dumps(content, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=4), st.integers(min_value=0), st.integers(min_value=0, max_value=40))
@thorough
def test_any_damage_decodes_or_is_refused(junk: bytes, place: int, length: int) -> None:
    """No damage to a good document raises anything but ImdsError."""
    whole = body(raw_event(), GOOD)
    place %= len(whole)
    decodes_or_is_refused(whole[:place] + junk + whole[place + length :])


@given(st.lists(odd_events, max_size=4), st.integers(min_value=0, max_value=4))
@thorough
def test_no_neighbour_harms_a_good_event(odd: list[dict[str, Any]], place: int) -> None:
    """Among events that are odd in any way, a good one arrives as it would alone."""
    odd = [item for item in odd if str(item["EventId"]).lower() != REBOOT_ID.lower()]
    answer = json.dumps({"DocumentIncarnation": 1, "Events": [*odd[:place], GOOD, *odd[place:]]})
    try:
        found = decode_document(answer.encode("utf-8", "surrogatepass"))
    except ImdsError:
        assert any(word in answer for word in ("NaN", "Infinity"))
        return
    assert scheduled(event_id=REBOOT_ID, event_type="Reboot") in found.events
