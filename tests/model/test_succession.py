"""Tests of `exporter.model.listing`, and of what `advance` makes of it: one event, several ids."""

from typing import Any

import pytest

from exporter.model.documents import Defect
from exporter.model.lifecycle import Transition
from tests.builders import scheduled, started
from tests.lives import Life, at, happened, path

SCHEDULED, STARTED, UPDATED = Transition.SCHEDULED, Transition.STARTED, Transition.UPDATED
COMPLETED, CANCELLED, VANISHED = Transition.COMPLETED, Transition.CANCELLED, Transition.VANISHED


def test_an_event_goes_on_under_a_new_id() -> None:
    """A Scheduled event that goes as its like comes Started has started, and keeps its life and first id."""
    life = Life()
    life.feed(scheduled(event_id="A1"))
    step = life.feed(started(event_id="A2", resources=("westno_1", "_WestNO_0")))
    assert happened(step) == [("A2", STARTED)]
    (tracked,) = life.current
    assert (tracked.key, tracked.ids, tracked.event.event_id) == ("a1", ("A1", "A2"), "A2")
    assert (tracked.first_seen, tracked.started) == (at(1), at(2))
    life.restart()
    assert happened(life.feed()) == [("A2", COMPLETED)]
    assert path(life.past[0]) == [SCHEDULED, STARTED, COMPLETED]


def test_both_ids_mean_the_event_from_then_on() -> None:
    """An event is known by any id it ever had; of two listed at once the newer one holds."""
    life = Life()
    life.feed(scheduled(event_id="A1"))
    life.feed(started(event_id="A2"))
    assert life.feed(scheduled(event_id="a1")).occurrences == ()
    assert life.feed(started(event_id="a2"), scheduled(event_id="A1")).occurrences == ()
    assert [(t.ids, t.event.event_id) for t in life.current] == [(("A1", "A2"), "a2")]


def test_of_several_ids_the_newest_holds() -> None:
    """Where a document lists an event under several of its ids, the newest says how it stands."""
    life = Life()
    for event_id in ("A1", "A2", "A3"):
        life.feed(started(event_id=event_id))
    assert life.feed(started(event_id="A3", duration_seconds=9), started(event_id="A2")).occurrences
    assert life.current[0].event.event_id == "A3"
    over = started(event_id="A3", event_status="Completed")
    assert happened(life.feed(over, scheduled(event_id="A1"))) == [("A3", COMPLETED)]


def test_a_chain_of_ids() -> None:
    """An event that falls back to Scheduled may be succeeded once more, and `ids` lists all."""
    life = Life()
    life.feed(scheduled(event_id="A1"))
    life.feed(started(event_id="A2"))
    life.feed(scheduled(event_id="A2"))
    assert life.feed(started(event_id="A3")).occurrences == ()
    assert life.current[0].ids == ("A1", "A2", "A3")


def test_from_started_to_started() -> None:
    """A Started event goes on under a new id at the very next incarnation; over a gap it is another event."""
    life = Life()
    life.feed(started(event_id="A1"))
    assert life.feed(started(event_id="A2")).occurrences == ()
    assert life.current[0].ids == ("A1", "A2")
    step = life.feed(started(event_id="A3"), incarnation=9)
    assert happened(step) == [("A2", COMPLETED), ("A3", STARTED)]


def test_a_started_one_beside_a_scheduled_one_leaves_doubt() -> None:
    """Two events of one nature that go, in whatever status, have no successor."""
    life = Life()
    life.feed(scheduled(event_id="A1"), started(event_id="B1"))
    step = life.feed(started(event_id="A2"))
    assert sorted(happened(step)) == [("A1", CANCELLED), ("A2", STARTED), ("B1", COMPLETED)]


def test_several_natures_succeed_at_once() -> None:
    """Events that differ in type, source or resources cannot be mistaken for one another."""
    natures: tuple[dict[str, Any], ...] = (
        {},
        {"event_type": "Reboot"},
        {"event_source": "User"},
        {"resources": ("WestNO_0",)},
    )
    life = Life()
    life.feed(*(scheduled(event_id=f"old{i}", **nature) for i, nature in enumerate(natures)))
    step = life.feed(*(started(event_id=f"new{i}", **nature) for i, nature in enumerate(reversed(natures))))
    assert {o.transition for o in step.occurrences} == {STARTED}
    assert {t.ids for t in life.current} == {(f"old{i}", f"new{3 - i}") for i in range(4)}


@pytest.mark.parametrize(("dropped", "brought"), [(2, 1), (1, 2), (2, 2)])
def test_of_several_alike_nobody_can_tell(dropped: int, brought: int) -> None:
    """Where more than one would fit, they are different events; another nature is not affected by that."""
    life = Life()
    other = {"event_type": "Reboot"}
    life.feed(*(scheduled(event_id=f"old{i}") for i in range(dropped)), scheduled(event_id="R1", **other))
    step = life.feed(*(started(event_id=f"new{i}") for i in range(brought)), started(event_id="R2", **other))
    assert sorted(happened(step)) == sorted(
        [(f"old{i}", CANCELLED) for i in range(dropped)]
        + [(f"new{i}", STARTED) for i in range(brought)]
        + [("R2", STARTED)]
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (scheduled(event_id="A1"), started(event_id="A2", event_type="Reboot")),
        (scheduled(event_id="A1"), started(event_id="A2", event_source="User")),
        (scheduled(event_id="A1"), started(event_id="A2", resources=("WestNO_0",))),
        (scheduled(event_id="A1"), scheduled(event_id="A2")),
        (scheduled(event_id="A1", event_status="Paused"), started(event_id="A2")),
    ],
    ids=["type", "source", "resources", "to Scheduled", "from an unknown status"],
)
def test_no_succession(old: Any, new: Any) -> None:
    """What differs in nature, or does not go from Scheduled to Started, is another event."""
    life = Life()
    life.feed(old)
    step = life.feed(new)
    assert len(step.occurrences) == 2
    assert [(t.ids, t.first_seen) for t in life.current] == [(("A2",), at(2))]
    assert [t.ids for t in life.past] == [("A1",)]


def test_no_succession_while_both_are_listed() -> None:
    """A Started event that comes beside the Scheduled one is not its successor."""
    life = Life()
    life.feed(scheduled(event_id="A1"))
    assert happened(life.feed(scheduled(event_id="A1"), started(event_id="A2"))) == [("A2", STARTED)]
    assert len(life.current) == 2


def test_no_succession_by_an_event_that_was_known() -> None:
    """A Started event that returns is itself, and not what another has become."""
    life = Life()
    life.feed(started(event_id="A2"))
    life.feed(scheduled(event_id="A1"))
    assert happened(life.feed(started(event_id="A2"))) == [("A1", CANCELLED), ("A2", STARTED)]
    assert [t.ids for t in life.current] == [("A2",)]


def test_no_succession_of_an_event_that_is_only_unreadable() -> None:
    """An event that is listed but cannot be decoded has no successor."""
    life = Life()
    life.feed(scheduled(event_id="A1"))
    defects = (Defect("A1", "event not understood", lost=True),)
    assert happened(life.feed(started(event_id="A2"), defects=defects)) == [("A2", STARTED)]
    assert [t.ids for t in life.current] == [("A1",), ("A2",)]
