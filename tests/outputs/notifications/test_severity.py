import itertools
from pathlib import Path

import pytest

from exporter.model.lifecycle import Transition, TransitionRecord
from exporter.model.messages import Severity, severity
from tests.builders import message
from tests.clocks import NOW

TYPES = (("Freeze",), ("Reboot", "Redeploy", "Evacuate"), ("Preempt", "Terminate"))
PHASED = ("scheduled", "started", "updated", "imminent")


def test_a_message_knows_its_severity() -> None:
    """An update or a failed hook counts by whether the event of its message has begun, or is over."""
    begun = (TransitionRecord(Transition.STARTED, NOW),)
    assert message(Transition.UPDATED).severity is Severity.WARNING
    assert message(Transition.UPDATED, transitions=begun).severity is Severity.CRITICAL
    assert message(Transition.UPDATED, type="Terminate").severity is Severity.CRITICAL


@pytest.mark.parametrize(
    ("label", "transitions", "phases"),
    [
        (
            "`scheduled`, `imminent`, `updated` before the start",
            ("scheduled", "imminent", "updated"),
            (False,),
        ),
        ("`started`, `updated` after it", ("started", "updated"), (True,)),
        *((f"`{name}`", (name,), (False, True)) for name in Transition if name not in PHASED),
    ],
)
def test_the_scale(label: str, transitions: tuple[str, ...], phases: tuple[bool, ...]) -> None:
    """It is that of docs/events.md for every transition and type; an unknown one counts as a Reboot."""
    page = (Path(__file__).parents[3] / "docs" / "events.md").read_text(encoding="utf-8")
    table = page.partition("use one scale:")[2].splitlines()
    row = next(line for line in table if line.startswith(f"| {label} |"))
    for types, cell in zip(TYPES, row.split(" | ")[1:], strict=True):
        for transition, event_type in itertools.product(transitions, types):
            found = dict.fromkeys(severity(transition, event_type, begun=begun).value for begun in phases)
            assert " before the start, else ".join(found) == cell.removesuffix(" |")
