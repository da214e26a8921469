"""What is stored of each kind takes no room for what is empty, and comes back as it was."""

from typing import Any

import msgspec
import pytest

from exporter.model.events import SCHEDULED, Affected, ScheduledEvent
from exporter.model.lifecycle import Life, Transition, TransitionRecord
from exporter.model.messages import Delivery, Message, Rendered, Severity, WatchChange, WatchMessage
from exporter.model.views import listed_view
from exporter.model.vm import VirtualMachine
from exporter.outputs.notifications.outbox import Letter
from exporter.outputs.otlp.telemetry import Span, SpanEvent
from exporter.state.jobs import Record
from tests.state_support import START, life_of

_EVENT = ScheduledEvent("a", "Freeze", SCHEDULED)
# Those that are not 0 or False where they are left out.
_USUAL: dict[Any, dict[str, int]] = {Life: {"number": 1}, Rendered: {"is_incident": True}}


@pytest.mark.parametrize(
    "stored",
    [
        _EVENT,
        life_of("A"),
        TransitionRecord(Transition.SCHEDULED, START),
        Message("oncall", "a", 1, Transition.SCHEDULED, START, None, listed_view(_EVENT, Affected.SELF)),
        WatchMessage("oncall", "watch", 1, WatchChange.BLIND, START, None, START),
        Record(),
        Letter(),
        Span("a", "b", "c", "", START, START, {}),
        SpanEvent("a", START),
        VirtualMachine(),
        Rendered("title", "body", "text", Severity.INFO),
        Delivery(delivered=True),
    ],
    ids=lambda stored: type(stored).__name__,
)
def test_what_is_empty_takes_no_room(stored: Any) -> None:
    """Of each kind only the fields that must be there are written; numbers that are not are 0, or counts."""
    written = msgspec.json.encode(stored)
    required = {field.encode_name for field in msgspec.structs.fields(stored) if field.required}
    assert msgspec.json.decode(written).keys() - {"type"} == required
    assert msgspec.json.decode(written, type=type(stored)) == stored
    left_out = {name: value for name, value in msgspec.structs.asdict(stored).items() if name not in required}
    numbers = {name: value for name, value in left_out.items() if isinstance(value, int) and value}
    assert numbers == _USUAL.get(type(stored), {})
