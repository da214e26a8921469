"""Model and product against the documentation of odd documents, names and new ids."""

from tests.model.cases import FOR_OTHERS, OTHERS, STARTED, UNREADABLE, A, event, last, poll, story, told_of
from tests.model.histories import NAME


def test_no_incarnation() -> None:
    """Without an incarnation a document counts, and nothing that is gone is cancelled by it."""
    for incarnation in (None, "two", 1.5):
        assert story(poll(0, 1, A), poll(1, incarnation)) == "scheduled a | vanished a"
        steps = poll(0, 1, A), poll(1, incarnation, STARTED), poll(2, 2)
        assert story(*steps) == "scheduled a | started a | completed a"
        assert last(poll(0, 1, A), poll(1, incarnation, A), poll(2, 2)) == "vanished a"
        assert last(poll(0, 1, A), poll(1, incarnation, event(status="Canceled"))) == "cancelled a"


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
    for moved in ({"Resources": [NAME, "vm_1"]}, {"Resources": ["vm_2", NAME]}):
        assert last(poll(0, 1, A), poll(1, 2, new | moved)) == "started a"
    for fields in ({"EventType": "Freeze"}, {"EventSource": "User"}, {"Resources": OTHERS}):
        other = " other" if fields.get("Resources") else ""
        assert last(poll(0, 1, A), poll(1, 2, new | fields)) == f"cancelled a, started b{other}"
    others = {"Resources": ["vm_1", "vm_2"]}
    assert last(poll(0, 1, FOR_OTHERS), poll(1, 2, new | others)) == "cancelled a other, started b other"
    assert told_of(poll(0, 1, A), poll(1, 2, new))[1][0].life.ids == ("a", "b")
    assert last(poll(0, 1, A), poll(1, 2, UNREADABLE, new)) == "started b"
    assert last(poll(0, 1, event(status="Paused")), poll(1, 2, new)) == "cancelled a, started b"


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
