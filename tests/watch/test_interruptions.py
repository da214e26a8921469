"""Tests of `exporter.watch.interruptions`: what a pause is put down to."""

import logging
from datetime import timedelta

import pytest

from exporter.model.events import Target
from exporter.model.jobs import Pause
from exporter.model.lifecycle import TrackedEvent, Transition, TransitionRecord
from exporter.model.views import Snapshot
from exporter.watch.interruptions import Interruptions
from tests.builders import FREEZE_ID, REBOOT_ID, scheduled, started
from tests.clocks import NOW, HandClock


class Pauses:
    """Keeps what is counted."""

    def __init__(self) -> None:
        self.counted: list[tuple[str, float]] = []

    def paused(self, event_type: str, seconds: float) -> None:
        """Count."""
        self.counted.append((event_type, seconds))


def under_way(event_id: str = FREEZE_ID, event_type: str = "Freeze", **fields: object) -> TrackedEvent:
    """Return an event that is Started for this VM."""
    event = started(event_id=event_id, event_type=event_type)
    record = TransitionRecord(Transition.STARTED, NOW)
    return TrackedEvent(
        event,
        (event_id,),
        first_seen=NOW,
        started=NOW,
        transitions=(record,),
        **fields,  # type: ignore[arg-type]  # as given
    )


@pytest.mark.parametrize(
    ("snapshot", "counted"),
    [
        (Snapshot(instance="WestNO_0", current=(under_way(),)), ["Freeze"]),
        (
            Snapshot(
                instance="WestNO_0", current=(under_way(), under_way(REBOOT_ID, "Reboot"), under_way("c"))
            ),
            ["Freeze", "Reboot"],
        ),
        (
            Snapshot(
                instance="WestNO_0",
                past=(under_way(ended=NOW - timedelta(seconds=4), outcome=Transition.COMPLETED),),
            ),
            ["Freeze"],
        ),
        (
            Snapshot(
                instance="WestNO_0",
                past=(under_way(ended=NOW - timedelta(seconds=7), outcome=Transition.COMPLETED),),
            ),
            [],
        ),
        (Snapshot(instance="other", current=(under_way(affects=Target.OTHER),)), []),
        (Snapshot(instance=None, current=(under_way(),)), []),
        (
            Snapshot(instance="WestNO_0", current=(TrackedEvent(scheduled(), (FREEZE_ID,), first_seen=NOW),)),
            [],
        ),
    ],
)
def test_a_pause_counts_for_what_was_started(
    snapshot: Snapshot, counted: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Once per type of event, for this VM; one that is gone since the pause too; and it is logged."""
    caplog.set_level(logging.INFO)
    pauses = Pauses()
    reported: list[Pause] = []
    Interruptions(lambda: snapshot, pauses.paused, HandClock(), report=reported.append).paused(5.5)
    assert [len(pause.keys) > 0 for pause in reported] == [True] * bool(counted)
    assert pauses.counted == [(event_type, 5.5) for event_type in counted]
    assert [(r.getMessage(), vars(r)["seconds"]) for r in caplog.records] == [("pause", 5.5)]


def test_announced_beside_observed(caplog: pytest.LogCaptureFixture) -> None:
    """The log line has what Azure announced, to be compared; so has that of a step of the clock."""
    caplog.set_level(logging.INFO)
    pauses = Pauses()
    snapshot = Snapshot(instance="WestNO_0", current=(under_way(),))
    reported: list[Pause] = []
    found = Interruptions(lambda: snapshot, pauses.paused, HandClock(), report=reported.append)
    found.paused(7.0)
    found.set_forward(28.0)
    assert [vars(record)["announced_seconds"] for record in caplog.records] == [[5], [5]]
    assert caplog.records[1].getMessage() == "clock set forward"
    assert len(pauses.counted) == 1
    assert reported == [Pause((FREEZE_ID.lower(),), 7.0)]
