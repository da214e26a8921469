from datetime import timedelta
from typing import Any

import pytest

from exporter.model.causes import cause
from exporter.model.events import SCHEDULED, STARTED
from exporter.model.lifecycle import Transition
from tests.builders import view
from tests.clocks import NOW

DAYS = {"not_before": NOW + timedelta(days=3), "description": ""}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"description": "Paused by a memory-preserving Live Migration."}, "Azure moves the running VM"),
        ({"description": "Host server is undergoing maintenance."}, "Azure maintains the host."),
        # Of Microsoft's mock server.
        ({"description": "Virtual machine has encountered a failure."}, "The host has failed"),
        (
            {"description": "Virtual machine is going to be restarted as requested by authorized user."},
            "A user with rights on the VM requested it",
        ),
        (DAYS, "So much notice usually means"),
        (DAYS | {"description": "Paused for host maintenance."}, "So much notice usually means"),
        (DAYS | {"source": "User"}, ""),
        (DAYS | {"type": "Terminate"}, ""),
        (DAYS | {"not_before": NOW + timedelta(days=1)}, ""),
        (DAYS | {"ended": NOW, "outcome": Transition.CANCELLED}, ""),
        ({"description": "The host is being repaired."}, ""),
    ],
)
def test_what_a_description_means(fields: dict[str, Any], expected: str) -> None:
    """Azure's known texts and a notice of days have a cause and advice; other texts and past events none."""
    found = cause(view(**fields))
    assert found.startswith(expected)
    assert bool(found) is bool(expected)


def test_what_helps_before_the_start() -> None:
    """The advice to approve an event ends when the event starts."""
    known = {"description": "Paused for host maintenance."}
    before, after = (cause(view(**known, status=status)) for status in (SCHEDULED, STARTED))
    assert before == f"{after} After an approval it starts earlier, at a time of your choice."
