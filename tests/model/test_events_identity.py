import hashlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.events import trace_id


@given(st.uuids().filter(lambda guid: guid.int != 0))
def test_trace_id_is_the_guid(guid: uuid.UUID) -> None:
    """A GUID's trace id is its own 128 bits, in whichever case it is written."""
    assert trace_id(str(guid)) == trace_id(str(guid).upper()) == guid.hex


GUID = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"
NEAR = [f"{{{GUID}}}", f"urn:uuid:{GUID}", GUID.replace("-", "_"), GUID.replace("-", ""), f"{GUID}\n"]
IDS = ["maintenance-7", "", "0", str(uuid.UUID(int=0)), "ümlaut", *NEAR]


@pytest.mark.parametrize("event_id", IDS)
def test_trace_id_of_what_is_no_guid(event_id: str) -> None:
    """Any other id, and the GUID of zeros, gives the first 128 bits of its SHA-256."""
    assert trace_id(event_id) == hashlib.sha256(event_id.encode()).hexdigest()[:32]
