import hashlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.events import Target, normal_name, same_resources, trace_id
from tests.builders import scheduled


@given(st.uuids().filter(lambda guid: guid.int != 0))
def test_trace_id_is_the_guid(guid: uuid.UUID) -> None:
    """A GUID's trace id is its own 128 bits, in whichever case it is written."""
    assert trace_id(str(guid)) == trace_id(str(guid).upper()) == guid.hex


@pytest.mark.parametrize("event_id", ["maintenance-7", "", "0", str(uuid.UUID(int=0)), "ümlaut"])
def test_trace_id_of_what_is_no_guid(event_id: str) -> None:
    """Any other id, and the GUID of zeros, gives the first 128 bits of its SHA-256."""
    assert trace_id(event_id) == hashlib.sha256(event_id.encode()).hexdigest()[:32]


@pytest.mark.parametrize(
    ("name", "expected"), [("WestNO_0", "westno_0"), ("_WestNO_0", "westno_0"), ("__a", "_a"), ("", "")]
)
def test_names_are_folded(name: str, expected: str) -> None:
    """Case, and one underscore in front, mean nothing in a VM's name."""
    assert normal_name(name) == expected


@pytest.mark.parametrize(
    ("instance", "resources", "expected"),
    [
        ("WestNO_0", ("WestNO_0", "WestNO_1"), Target.SELF),
        ("westno_1", ("_WestNO_0", "_WESTNO_1"), Target.SELF),
        ("_WestNO_1", ("WestNO_1",), Target.SELF),
        ("WestNO_2", ("WestNO_0", "WestNO_1"), Target.OTHER),
        ("WestNO", ("WestNO_0",), Target.OTHER),
        ("WestNO_0", (), Target.SELF),
        (None, ("WestNO_0",), Target.SELF),
        ("", ("WestNO_0",), Target.SELF),
    ],
)
def test_whom_an_event_hits(instance: str | None, resources: tuple[str, ...], expected: Target) -> None:
    """This VM is affected if it is listed, if no VM is, and while its name is unknown."""
    assert scheduled(resources=resources).target(instance) is expected


def test_resources_are_compared_as_sets_of_names_with_repeats() -> None:
    """Order, case and a leading underscore mean nothing; another name, or one more time the same, does."""
    assert same_resources(("a", "B"), ("_b", "A"))
    assert not same_resources(("a", "a"), ("a",))
    assert not same_resources(("a",), ("b",))
