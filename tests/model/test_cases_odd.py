"""Model and product against the documentation of odd documents, names and new ids."""

from typing import Any

from tests.model.cases import FOR_OTHERS, OTHERS, STARTED, UNREADABLE, A, event, last, poll, story, told_of
from tests.model.histories import BEGINNING, NAME
from tests.model.life import Poll, State, advance
from tests.model.reading import read


def test_an_old_incarnation_with_other_content() -> None:
    """The content counts, whatever the number."""
    steps = poll(0, 5, A), poll(1, 5, STARTED), poll(2, 3, event("B"))
    assert story(*steps) == "scheduled a | started a | completed a, scheduled b"


def test_two_events_with_one_id() -> None:
    """Of two events with one id the last holds."""
    assert story(poll(0, 1, A, event("a", "Started"))) == "started a"
    assert story(poll(0, 1, event("a", "Started"), A)) == "scheduled a"
    assert story(poll(0, 1, A), poll(1, 2, STARTED, UNREADABLE)) == "scheduled a | -"


def test_a_reset() -> None:
    """After a reset events continue, and nothing is reported twice."""
    assert story(poll(0, 9, A), poll(1, 0, A), poll(2, 1)) == "scheduled a | - | cancelled a"


def test_incarnations_as_text() -> None:
    """A numeric string is that number."""
    assert last(poll(0, "1", A), poll(1, 2)) == "cancelled a"
    assert last(poll(0, 1, A), poll(1, "2")) == "cancelled a"


def test_no_incarnation() -> None:
    """Without an incarnation a document counts, and nothing that is gone is cancelled by it."""
    for incarnation in (None, "two", 1.5):
        assert story(poll(0, 1, A), poll(1, incarnation)) == "scheduled a | vanished a"
        steps = poll(0, 1, A), poll(1, incarnation, STARTED), poll(2, 2)
        assert story(*steps) == "scheduled a | started a | completed a"
        assert last(poll(0, 1, A), poll(1, incarnation, A), poll(2, 2)) == "vanished a"
        assert last(poll(0, 1, A), poll(1, incarnation, event(status="Canceled"))) == "cancelled a"


def test_unreadable_events() -> None:
    """An event that is listed but cannot be read stays as it is."""
    steps = poll(0, 1, UNREADABLE), poll(1, 2, A), poll(2, 3, UNREADABLE), poll(3, 4, STARTED)
    assert story(*steps) == "- | scheduled a | - | started a"


def test_an_unreadable_event_without_an_id() -> None:
    """It may be any event: nothing that is gone is cancelled by such a document."""
    for rubbish in (17, {"EventType": "Reboot"}, event(EventId=None)):
        assert last(poll(0, 1, A), poll(1, 2, rubbish)) == "vanished a"
        assert last(poll(0, 1, STARTED), poll(1, 2, rubbish)) == "completed a"


def test_an_unknown_name() -> None:
    """While the VM's name is unknown, every new event is its own; then those of others are cancelled."""
    for first in (FOR_OTHERS, event(status="Started", Resources=OTHERS)):
        word = first["EventStatus"].lower()
        steps = poll(0, 1, first, instance=None), poll(1, 1, first)
        assert story(*steps) == f"{word} a | cancelled a, {word} a/2 other"
    mine = poll(0, 1, A, instance=None), poll(1, 1, A), poll(2, 2, STARTED)
    assert story(*mine) == "scheduled a | - | started a"
    assert last(poll(0, 1, FOR_OTHERS), poll(1, 2, A, instance=None)) == "updated a other"
    begun = event(status="Started", Resources=OTHERS)
    leaves = poll(0, 1, STARTED), poll(1, 2, begun, instance=None), poll(2, 2, begun)
    assert story(*leaves) == "started a | updated a | completed a, started a/2 other"


def test_names_in_odd_spelling() -> None:
    """Names are compared without regard to case and to one leading underscore; no names mean this VM."""
    for resources in (["VM_0"], ["_vm_0"], [], None):
        assert story(poll(0, 1, event(Resources=resources))) == "scheduled a"
    assert story(poll(0, 1, event(Resources=["__vm_0"]))) == "scheduled a other"
    assert story(poll(0, 1, A, instance="_VM_0")) == "scheduled a"


def test_succession() -> None:
    """One dropped, one new and Started, of one type, source and resources: the same event under a new id."""
    new = event("B", "Started")
    assert story(poll(0, 1, A), poll(1, 2, new), poll(2, 3)) == "scheduled a | started a | completed a"
    assert last(poll(0, 1, A), poll(90_000, 9, new)) == "started a"
    for fields in ({"EventType": "Freeze"}, {"EventSource": "User"}, {"Resources": [NAME, "vm_1"]}):
        assert last(poll(0, 1, A), poll(1, 2, new | fields)) == "cancelled a, started b"
    assert told_of(poll(0, 1, A), poll(1, 2, new))[1][0].life.ids == ("a", "b")
    assert last(poll(0, 1, A), poll(1, 2, UNREADABLE, new)) == "started b"
    assert last(poll(0, 1, event(status="Paused")), poll(1, 2, new)) == "cancelled a, started b"


def test_several_successions_at_once() -> None:
    """Events that differ in type, source or resources cannot be mistaken for one another."""
    natures: tuple[dict[str, Any], ...] = (
        {},
        {"EventType": "Freeze"},
        {"EventSource": "User"},
        {"Resources": [NAME, "vm_1"]},
    )
    old = [event(f"a{number}", **nature) for number, nature in enumerate(natures)]
    new = [event(f"b{number}", "Started", **nature) for number, nature in enumerate(natures)]
    assert (
        last(poll(0, 1, *old), poll(1, 2, *reversed(new))) == "started a0, started a1, started a2, started a3"
    )


def test_a_chain_of_ids() -> None:
    """An event that falls back to Scheduled may go on under a third id."""
    second, back, third = event("B", "Started"), event("B"), event("C", "Started")
    told = story(poll(0, 1, A), poll(1, 2, second), poll(2, 3, back), poll(3, 9, third), poll(4, 10))
    assert told == "scheduled a | started a | - | - | completed a"


def test_succession_of_a_started_event() -> None:
    """A started event continues under a new id only in the very next incarnation."""
    new = event("B", "Started", NotBefore="")
    assert story(poll(0, 1, STARTED), poll(1, 2, new), poll(2, 3)) == "started a | - | completed a"
    for incarnation in (1, 3, None):
        assert last(poll(0, 1, STARTED), poll(1, incarnation, new)) == "completed a, started b"


def test_no_succession_in_doubt() -> None:
    """Two that are dropped or brought, one that is known or not Started, make no succession."""
    new = event("B", "Started")
    assert last(poll(0, 1, A, event("C")), poll(1, 2, new)) == "cancelled a, cancelled c, started b"
    assert (
        last(poll(0, 1, A, event("C", "Advisory")), poll(1, 2, new)) == "cancelled a, cancelled c, started b"
    )
    assert last(poll(0, 1, A), poll(1, 2, new, event("C", "Started"))) == "cancelled a, started b, started c"
    two = last(poll(0, 1, A, event("C")), poll(1, 2, new, event("D", "Started")))
    assert two == "cancelled a, cancelled c, started b, started d"
    assert last(poll(0, 1, A), poll(1, 2, A, new)) == "started b"
    assert last(poll(0, 1, A), poll(1, 2, event("B"))) == "cancelled a, scheduled b"
    known = poll(0, 1, event("B")), poll(1, 2), poll(2, 3, A), poll(3, 4, new)
    assert last(*known) == "cancelled a, started b/2"


def test_the_first_id_stays() -> None:
    """An event is known by its first id whichever of its ids is listed, in a new life too."""
    new = event("B", "Started")
    steps = (
        poll(0, 1, A),
        poll(1, 2, new),
        poll(2, 1, A),
        poll(3, 2, new),
        poll(4, 3),
        poll(5, 4, new),
        poll(6, 5, A),
    )
    assert story(*steps) == "scheduled a | started a | - | - | completed a | started a/2 | -"


def test_the_newest_id_counts() -> None:
    """Of several ids of one event in a document the newest counts, whatever it says."""
    newest = event("C", "Started", Description="newest")
    steps = poll(0, 1, STARTED), poll(1, 2, event("B", "Started")), poll(2, 3, newest)
    told = told_of(*steps, poll(99, 4, event("C", "Started", Description="newer"), event("B", "Started")))
    assert [each.life.event.id for each in told[3]] == ["c"]
    assert last(*steps, poll(3, 4, event("C", "Completed"), event("B", "Started"))) == "completed a"


def test_a_state_stays_as_it_is() -> None:
    """A state can be continued in several ways."""
    start, _ = advance(State(), Poll(read(poll(0, 1, A).body), BEGINNING, NAME, watching=False))
    for body, word in ((poll(1, 2).body, "cancelled"), (poll(1, 3).body, "vanished")):
        _, told = advance(start, Poll(read(body), BEGINNING, NAME, watching=True))
        assert [each.transition for each in told] == [word]
