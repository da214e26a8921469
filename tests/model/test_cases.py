"""Model and product against the documentation of an event's life, sentence by sentence."""

from datetime import timedelta

from tests.model.cases import (
    EARLIER,
    FOR_OTHERS,
    OTHERS,
    STARTED,
    UNREADABLE,
    A,
    event,
    last,
    poll,
    story,
    told_of,
)
from tests.model.histories import BEGINNING, NAME


def test_advised() -> None:
    """An event that is first seen neither Scheduled nor Started is advised, once, and then continues."""
    advice = event(status="Advisory")
    steps = poll(0, 1, advice), poll(1, 2, advice), poll(2, 3, A), poll(3, 4, STARTED)
    assert story(*steps) == "advised a | - | scheduled a | started a"


def test_advised_and_gone() -> None:
    """An advised event that goes is cancelled, without any proof."""
    advice = poll(0, 1, event(status="Advisory"))
    assert last(advice, poll(90_000, 9)) == "cancelled a"
    assert last(advice, poll(1, None)) == "vanished a"


def test_scheduled_started_completed() -> None:
    """The usual life."""
    assert story(poll(0, 1, A), poll(1, 2, STARTED), poll(2, 3)) == "scheduled a | started a | completed a"


def test_started_first_of_all() -> None:
    """An event may be Started when it is first seen."""
    assert story(poll(0, 1, STARTED), poll(1, 2)) == "started a | completed a"


def test_updated() -> None:
    """A change of NotBefore, duration, resources or description is reported, with old and new values."""
    changed = event(NotBefore=None, DurationInSeconds=-1, Resources=[NAME, "vm_1"], Description="Soon.")
    told = told_of(poll(0, 1, A), poll(1, 2, changed))[1]
    assert [each.transition for each in told] == ["updated"]
    assert told[0].changes == (
        ("not_before", BEGINNING + timedelta(minutes=15), None),
        ("duration_seconds", 5, None),
        ("resources", (NAME,), (NAME, "vm_1")),
        ("description", "", "Soon."),
    )


def test_resources_that_change() -> None:
    """One name more, less or none at all is an update; without any the event is still this VM's."""
    both = poll(0, 1, event(Resources=[NAME, "vm_1"]))
    for names in ([NAME], [NAME, "vm_1", "vm_1"], []):
        assert story(both, poll(1, 2, event(Resources=names))) == "scheduled a | updated a"


def test_what_is_no_update() -> None:
    """Other fields, other spellings and another order of names change nothing."""
    both = event(Resources=[NAME, "vm_1"])
    same = event(
        "a", "SCHEDULED", Resources=["_VM_1", "VM_0"], EventSource="User", NotBefore="Mon, " + EARLIER[5:]
    )
    assert story(poll(0, 1, both), poll(1, 2, same)) == "scheduled a | -"


def test_cancelled_with_proof() -> None:
    """Readable and not Started just before, and the very next incarnation."""
    assert story(poll(0, 1, A), poll(1, 2)) == "scheduled a | cancelled a"


def test_vanished() -> None:
    """An incarnation that was missed, repeated or set back proves nothing."""
    for incarnation in (1, 3, 0):
        assert last(poll(0, 1, A), poll(1, incarnation)) == "vanished a"


def test_cancelled_beside_a_field_that_cannot_be_read() -> None:
    """A defect without a lost event does not affect which events are listed."""
    odd = event("B", DurationInSeconds="soon")
    assert last(poll(0, 1, A), poll(1, 2, odd)) == "cancelled a, scheduled b"


def test_vanished_unreadable_just_before() -> None:
    """What could not be read in the document just before may have started there."""
    assert story(poll(0, 1, A), poll(1, 2, UNREADABLE), poll(2, 3)) == "scheduled a | - | vanished a"


def test_vanished_after_a_day() -> None:
    """After 24 hours the incarnations may have restarted, whether or not this was a restart."""
    day = 24 * 3600
    for restart in (True, False):
        assert last(poll(0, 1, A), poll(day, 2, restart=restart)) == "vanished a"
        assert last(poll(0, 1, A), poll(day - 1, 2, restart=restart)) == "cancelled a"
        assert last(poll(0, 1, A), poll(-day, 2, restart=restart)) == "vanished a"


def test_cancelled_after_days() -> None:
    """The 24 hours count from the last document, however long the event has been Scheduled."""
    steps = [poll(hours * 3600, 1, A) for hours in (0, 20, 40, 60)]
    assert last(*steps, poll(79 * 3600, 2)) == "cancelled a"


def test_once_in_a_life() -> None:
    """Started back to Scheduled, Started again, and a status of no meaning are not transitions."""
    paused = event(status="Paused")
    first = poll(0, 1, A), poll(1, 2, STARTED), poll(2, 3, A), poll(3, 4, paused)
    told = story(*first, poll(4, 5, STARTED), poll(5, 6, A), poll(6, 9))
    assert told == "scheduled a | started a | - | - | - | - | completed a"


def test_once_across_restarts() -> None:
    """A restart reports nothing again."""
    steps = poll(0, 1, A), poll(1, 1, A, restart=True), poll(2, 2, STARTED, restart=True)
    assert story(*steps) == "scheduled a | - | started a"


def test_updates_under_unknown_statuses() -> None:
    """Between two unknown statuses there is no transition for the change."""
    steps = poll(0, 1, event(status="Advisory")), poll(1, 2, event(status="Paused", Description="Soon."))
    assert story(*steps) == "advised a | updated a"


def test_updates_are_folded() -> None:
    """The first update is reported at once, later ones a minute after the last, with all changes since."""
    first, second, third = (event(DurationInSeconds=number) for number in (6, 7, 8))
    start = poll(0, 1, A), poll(1, 2, first), poll(2, 3, second), poll(60, 4, third)
    told = told_of(*start, poll(61, 4, third), poll(62, 4, third))
    changes = [[each.changes for each in step] for step in told]
    one, two = ("duration_seconds", 5, 6), ("duration_seconds", 6, 8)
    assert changes == [[()], [(one,)], [], [], [(two,)], []]


def test_a_folded_update_that_was_taken_back() -> None:
    """Content that equals the last reported one is not an update."""
    first, second = event(DurationInSeconds=6), event(DurationInSeconds=7)
    steps = poll(0, 1, A), poll(1, 2, first), poll(2, 3, second), poll(3, 4, first), poll(99, 4, first)
    assert story(*steps) == "scheduled a | updated a | - | - | -"


def test_a_folded_update_before_the_start() -> None:
    """A start reports the pending update."""
    first, second = event(DurationInSeconds=6), event(DurationInSeconds=7)
    begun = event(status="Started", DurationInSeconds=7, NotBefore="")
    steps = poll(0, 1, A), poll(1, 2, first), poll(2, 3, second), poll(3, 4, begun), poll(99, 4, begun)
    assert story(*steps) == "scheduled a | updated a | - | started a | -"


def test_listed_again() -> None:
    """An event that is listed again after its end begins a new life."""
    first = poll(0, 1, A), poll(1, 2), poll(2, 3, A)
    assert story(*first) == "scheduled a | cancelled a | scheduled a/2"
    told = story(*first, poll(3, 4, STARTED), poll(4, 5), poll(5, 6, STARTED))
    assert told.endswith(" | started a/2 | completed a/2 | started a/3")


def test_this_vm_joins() -> None:
    """A document that adds this VM begins a life; the life for others ends without a transition."""
    assert story(poll(0, 1, FOR_OTHERS), poll(1, 2, A)) == "scheduled a other | scheduled a/2"
    begun = event(status="Started", Resources=OTHERS)
    assert story(poll(0, 1, begun), poll(1, 2, STARTED)) == "started a other | started a/2"
    to_and_fro = poll(0, 1, A), poll(1, 2, FOR_OTHERS), poll(2, 3, A), poll(3, 4, FOR_OTHERS)
    assert last(*to_and_fro) == "cancelled a/3, scheduled a/4 other"


def test_this_vm_leaves() -> None:
    """A document that drops this VM ends its life; the event continues as a separate life for others."""
    begun = event(status="Started", Resources=OTHERS)
    steps = poll(0, 1, A), poll(1, 2, FOR_OTHERS), poll(2, 3)
    assert story(*steps) == "scheduled a | cancelled a, scheduled a/2 other | cancelled a/2 other"
    assert last(poll(0, 1, STARTED), poll(1, 2, begun)) == "completed a, started a/2 other"
    assert last(poll(0, 1, A), poll(1, 2, begun)) == "cancelled a, started a/2 other"
    told = told_of(poll(0, 1, A), poll(1, 2, FOR_OTHERS))[1]
    assert [each.life.event.resources for each in told] == [(NAME,), tuple(OTHERS)]


def test_this_vm_leaves_and_the_event_ends() -> None:
    """The event's continuation for others, also in the same document, does not affect this VM's life."""
    assert last(poll(0, 1, A), poll(1, 2, event(status="Completed", Resources=OTHERS))) == "cancelled a"
    assert last(poll(0, 1, STARTED), poll(1, 2, event(status="Canceled", Resources=OTHERS))) == "completed a"


def test_order() -> None:
    """Endings come first, then what started, was updated, is scheduled or advised."""
    before = [event("new", "Advisory"), event("upd"), event("sta"), event("end", EventType="Freeze")]
    after = [event("fresh"), event("upd", Description="x"), event("sta", "Started"), event("new", "Advisory")]
    told = last(poll(0, 1, *before), poll(1, 2, *after))
    assert told == "cancelled end, started sta, updated upd, scheduled fresh"


def test_statuses_in_any_case() -> None:
    """Statuses are compared without regard to case."""
    steps = poll(0, 1, event(status="SCHEDULED")), poll(1, 2, event(status="started")), poll(2, 3)
    assert story(*steps) == "scheduled a | started a | completed a"


def test_azure_says_so() -> None:
    """Completed and Canceled end a life; an event that is first seen so has none."""
    words = (("Completed", "completed"), ("canceled", "cancelled"), ("Cancelled", "cancelled"))
    for status, outcome in words:
        said = event(status=status)
        first = poll(0, 1, said), poll(1, 2, A), poll(2, 9, said)
        told = story(*first, poll(3, 10, said), poll(4, 11, A), poll(5, 12))
        assert told == f"- | scheduled a | {outcome} a | - | scheduled a/2 | cancelled a/2"
    assert last(poll(0, 1, STARTED), poll(1, 2, event(status="Canceled"))) == "cancelled a"


def test_the_start_alone() -> None:
    """Becoming Started is not also an update, nor is going back."""
    assert story(poll(0, 1, A), poll(1, 2, STARTED), poll(2, 3, A)) == "scheduled a | started a | -"


def test_starts_that_were_watched() -> None:
    """A start is watched where the polls around it are at most 30 s apart."""
    for seconds, restart, watched in ((30, False, True), (31, False, False), (30, True, True)):
        told = told_of(poll(0, 1), poll(seconds, 2, STARTED, restart=restart))[1]
        assert (told[0].life.started is not None) is watched
    assert told_of(poll(0, 1, STARTED))[0][0].life.started is None


def test_impact() -> None:
    """How long it took is known where start and end were watched."""
    for gap, restart, impact in ((9999, False, timedelta(seconds=9999)), (9, True, None)):
        told = told_of(poll(0, 1), poll(1, 2, STARTED), poll(1 + gap, 3, restart=restart))[2]
        assert (told[0].transition, told[0].impact) == ("completed", impact)
    assert told_of(poll(0, 1, STARTED), poll(1, 2))[1][0].impact is None
    back = told_of(poll(0, 1), poll(1, 2, STARTED), poll(-3600, 3))
    assert back[2][0].impact == timedelta(0)


def test_gone_while_the_exporter_was_down() -> None:
    """A restart alone takes away no proof, but a missed incarnation does."""
    assert last(poll(0, 1, A), poll(99, 2, restart=True)) == "cancelled a"
    assert last(poll(0, 1, A), poll(99, 3, restart=True)) == "vanished a"
    assert last(poll(0, 1, STARTED), poll(99, 3, restart=True)) == "completed a"
