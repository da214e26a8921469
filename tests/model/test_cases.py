"""Model and product against the documentation of an event's life, sentence by sentence."""

import json
from datetime import timedelta
from typing import Any

from tests.model.compare import difference, report
from tests.model.histories import BEGINNING, NAME, Step
from tests.model.life import Told, follow
from tests.model.reading import ADVICE

EARLIER = "Wed, 04 Mar 2026 22:15:00 GMT"


def event(name: str = "A", status: str = "Scheduled", **fields: Any) -> dict[str, Any]:
    return {
        "EventId": name,
        "EventStatus": status,
        "EventType": "Reboot",
        "EventSource": "Platform",
        "Resources": [NAME],
        "NotBefore": EARLIER,
        "DurationInSeconds": 5,
        "Description": "",
    } | fields


def poll(seconds: float, incarnation: object, *events: object, **fields: Any) -> Step:
    """Return an answer that comes this long after the beginning."""
    text = json.dumps({"DocumentIncarnation": incarnation, "Events": events})
    # A number for which there is no value makes its event unreadable.
    body = text.replace('"1e999"', "1e999").encode()
    return Step(BEGINNING + timedelta(seconds=seconds), body, **fields)


def told_of(*steps: Step) -> list[list[Told]]:
    """Return the reports about each answer, which are the same for model and product."""
    found = difference(steps)
    assert found is None, report(steps, found)
    return [told for _, told in follow(steps)]


def story(*steps: Step) -> str:
    """Return the reports of each answer: transition, id, number of the life if not the first, target."""
    return " | ".join(", ".join(map(_word, told)) or "-" for told in told_of(*steps))


def last(*steps: Step) -> str:
    return story(*steps).rpartition(" | ")[2]


def _word(told: Told) -> str:
    number = f"/{told.life.number}" if told.life.number > 1 else ""
    return f"{told.transition} {told.life.ids[0]}{number}" + (" other" if told.life.target == "other" else "")


OTHERS = ["vm_1"]
A, STARTED = event(), event(status="Started", NotBefore="")
FOR_OTHERS = event(Resources=OTHERS)
UNREADABLE = event(DurationInSeconds="1e999")


def test_advised() -> None:
    """An event that is first seen neither Scheduled nor Started is advised, once, and then continues."""
    advice = event(status="Advisory")
    steps = poll(0, 1, advice), poll(1, 2, advice), poll(2, 3, A), poll(3, 4, STARTED)
    assert story(*steps) == "advised a | - | scheduled a | started a"
    # One that goes is cancelled, without any proof.
    assert last(poll(0, 1, advice), poll(90_000, 9)) == "cancelled a"
    assert last(poll(0, 1, advice), poll(1, None)) == "vanished a"


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


def test_cancelled_with_proof() -> None:
    """Readable and not Started just before, and the very next incarnation; else the event vanished."""
    assert story(poll(0, 1, A), poll(1, 2)) == "scheduled a | cancelled a"
    # An incarnation that was missed, repeated or set back proves nothing.
    for incarnation in (1, 3, 0):
        assert last(poll(0, 1, A), poll(1, incarnation)) == "vanished a"
    # What could not be read in the document just before may have started there.
    assert story(poll(0, 1, A), poll(1, 2, UNREADABLE), poll(2, 3)) == "scheduled a | - | vanished a"


def test_vanished_after_a_day() -> None:
    """After 24 hours the incarnations may have restarted, whether or not this was a restart."""
    day = 24 * 3600
    for restart in (True, False):
        assert last(poll(0, 1, A), poll(day, 2, restart=restart)) == "vanished a"
        assert last(poll(0, 1, A), poll(day - 1, 2, restart=restart)) == "cancelled a"
        assert last(poll(0, 1, A), poll(-day, 2, restart=restart)) == "vanished a"


def test_once_in_a_life() -> None:
    """Started back to Scheduled, Started again, and a status of no meaning are not transitions."""
    paused = event(status="Paused")
    first = poll(0, 1, A), poll(1, 2, STARTED), poll(2, 3, A), poll(3, 4, paused)
    told = story(*first, poll(4, 5, STARTED), poll(5, 6, A), poll(6, 9))
    assert told == "scheduled a | started a | - | - | - | - | completed a"


def test_updates_are_folded() -> None:
    """The first update is reported at once, later ones a minute after the last, with all changes since."""
    first, second, third = (event(DurationInSeconds=number) for number in (6, 7, 8))
    start = poll(0, 1, A), poll(1, 2, first), poll(2, 3, second), poll(60, 4, third)
    told = told_of(*start, poll(61, 4, third), poll(62, 4, third))
    changes = [[each.changes for each in step] for step in told]
    one, two = ("duration_seconds", 5, 6), ("duration_seconds", 6, 8)
    assert changes == [[()], [(one,)], [], [], [(two,)], []]


def test_listed_again() -> None:
    """An event that is listed again after its end begins a new life."""
    told = story(poll(0, 1, A), poll(1, 2), poll(2, 3, A), poll(3, 4, STARTED))
    assert told == "scheduled a | cancelled a | scheduled a/2 | started a/2"


def test_order() -> None:
    """Endings come first, then what started, was updated, is scheduled, is advised."""
    before = [event("new", "Advisory"), event("upd"), event("sta"), event("end", EventType="Freeze")]
    after = [event("adv", "Advisory"), event("fresh"), event("upd", Description="x"), event("sta", "Started")]
    told = last(poll(0, 1, *before), poll(1, 2, *after, event("new", "Advisory")))
    assert told == "cancelled end, started sta, updated upd, scheduled fresh, advised adv"


def test_azure_says_so() -> None:
    """Completed and Canceled end a life; an event that is first seen so has none."""
    words = (("Completed", "completed"), ("canceled", "cancelled"), ("Cancelled", "cancelled"))
    for status, outcome in words:
        said = event(status=status)
        first = poll(0, 1, said), poll(1, 2, A), poll(2, 9, said)
        told = story(*first, poll(3, 10, said), poll(4, 11, A), poll(5, 12))
        assert told == f"- | scheduled a | {outcome} a | - | scheduled a/2 | cancelled a/2"
    assert last(poll(0, 1, STARTED), poll(1, 2, event(status="Canceled"))) == "cancelled a"


def test_starts_that_were_watched() -> None:
    """A start is watched where the polls around it are at most 30 s apart."""
    for seconds, restart, watched in ((30, False, True), (31, False, False), (30, True, True)):
        told = told_of(poll(0, 1), poll(seconds, 2, STARTED, restart=restart))[1]
        assert (told[0].life.started is not None) is watched
    assert told_of(poll(0, 1, STARTED))[0][0].life.started is None


def test_impact() -> None:
    """How long it took is known where start and end were watched, and the clock was not set back."""
    for gap, restart, impact in ((9999, False, timedelta(seconds=9999)), (9, True, None)):
        told = told_of(poll(0, 1), poll(1, 2, STARTED), poll(1 + gap, 3, restart=restart))[2]
        assert (told[0].transition, told[0].impact) == ("completed", impact)
    assert told_of(poll(0, 1, STARTED), poll(1, 2))[1][0].impact is None
    for seconds, impact in ((1, timedelta(0)), (-3600, None)):
        assert told_of(poll(0, 1), poll(1, 2, STARTED), poll(seconds, 3))[2][0].impact == impact


NEAR = "Wed, 04 Mar 2026 22:11:00 GMT"
NOT_A_DOCUMENT = Step(BEGINNING + timedelta(seconds=70), b"<html>")


def test_imminent() -> None:
    """Each threshold below the notice is reported once, several passed at once as one, by the time alone."""
    coming = event(NotBefore=NEAR)
    told = story(
        poll(0, 1, coming),
        poll(59, 1, coming),
        NOT_A_DOCUMENT,
        poll(80, 1, coming, restart=True),
        poll(605, 1, coming),
    )
    assert told == "scheduled a | - | imminent a | - | imminent a"
    assert story(poll(0, 1, coming), poll(640, 1, coming)) == "scheduled a | imminent a"


def test_imminent_after_a_postponement() -> None:
    """A postponement beyond a threshold makes it count again; a clock that was set back does not."""
    coming, later = event(NotBefore=NEAR), event(NotBefore="Wed, 04 Mar 2026 22:22:00 GMT")
    again = story(poll(0, 1, coming), poll(61, 1, coming), poll(65, 2, later), poll(721, 2, later))
    assert again == "scheduled a | imminent a | updated a | imminent a"
    back = story(poll(0, 1, coming), poll(61, 1, coming), poll(-60, 1, coming), poll(62, 1, coming))
    assert back == "scheduled a | imminent a | - | -"


def test_what_is_never_imminent() -> None:
    """Only what is Scheduled and has a readable NotBefore is, and no recommendation."""
    for fields in ({"status": "Advisory"}, {"EventType": ADVICE}, {"NotBefore": ""}, {"status": "Started"}):
        found = event(**({"NotBefore": NEAR} | fields))
        assert last(poll(0, 1, found), poll(700, 1, found)) == "-"


FREEZE, REDEPLOY = event(EventType="Freeze"), event(EventType="Redeploy")


def test_another_type() -> None:
    """It ends the life as cancelled and begins another one, also once the event has started."""
    changed = told_of(poll(0, 1, FREEZE), poll(1, 2, A))[1]
    assert [(each.transition, each.life.type, each.life.changed_to) for each in changed] == [
        ("cancelled", "Freeze", "Reboot"),
        ("scheduled", "Reboot", None),
    ]
    frozen = event(EventType="Freeze", status="Started", NotBefore="")
    told = told_of(poll(0, 1, STARTED), poll(1, 2, frozen), poll(9, 3))
    assert [each.transition for each in told[1]] == ["cancelled", "started"]
    assert [(each.life.type, each.impact) for each in told[2]] == [("Freeze", timedelta(seconds=8))]


def test_a_recommendation_is_advice() -> None:
    """It is advised whatever its status, and cancelled when it goes, also after Started."""
    advice = event(EventType=ADVICE)
    started = event(EventType=ADVICE, status="Started")
    assert story(poll(0, 1, advice), poll(1, 2, started), poll(2, 9)) == "advised a | - | cancelled a"
    preempt = event(EventType="Preempt")
    assert story(poll(0, 1, advice), poll(1, 2, preempt)) == "advised a | cancelled a, scheduled a/2"


def test_no_status() -> None:
    """An event without a status is advised; what was scheduled and then had none may have started."""
    for status in ("", None, 7):
        unknown = event() | {"EventStatus": status}
        assert story(poll(0, 1, unknown), poll(1, 2, A)) == "advised a | scheduled a"
        assert story(poll(0, 1, A), poll(1, 2, unknown), poll(2, 3)) == "scheduled a | - | vanished a"


def test_no_type() -> None:
    """What begins without a type is Unknown; what is known goes on, and does not vanish."""
    for nothing in (None, 7, ""):
        unknown = event() | {"EventType": nothing}
        told = told_of(poll(0, 1, unknown), poll(1, 2, A))
        assert [each.life.type for step in told for each in step] == ["Unknown", "Unknown", "Reboot"]
        assert story(poll(0, 1, A), poll(1, 2, unknown), poll(2, 3, STARTED)) == "scheduled a | - | started a"
        assert last(poll(0, 1, A), poll(1, 2, unknown), poll(2, 3)) == "cancelled a"


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
    for moved in ({"Resources": [NAME, "vm_1"]}, {"Resources": ["vm_2", NAME]}):
        assert last(poll(0, 1, A), poll(1, 2, new | moved)) == "started a"
    for fields in ({"EventType": "Freeze"}, {"EventSource": "User"}, {"Resources": OTHERS}):
        other = " other" if fields.get("Resources") else ""
        assert last(poll(0, 1, A), poll(1, 2, new | fields)) == f"cancelled a, started b{other}"
    assert told_of(poll(0, 1, A), poll(1, 2, new))[1][0].life.ids == ("a", "b")


def test_succession_between_two_documents_of_a_watch() -> None:
    """After more than 30 s, or in another process, a new id is another event."""
    new = event("B", "Started")
    assert last(poll(0, 1, A), poll(30, 2, new)) == "started a"
    assert last(poll(0, 1, A), poll(31, 2, new)) == "cancelled a, started b"
    assert last(poll(0, 1, A), poll(1, 2, new, restart=True)) == "cancelled a, started b"


def test_two_ids_in_one_document() -> None:
    """They are two events, also if one had been taken for the other, and stay so."""
    new = event("B", "Started", NotBefore="")
    renewed = poll(0, 1, A), poll(1, 2, new)
    assert story(*renewed, poll(2, 3, A, new), poll(3, 4, A, new), poll(4, 5, A)) == (
        "scheduled a | started a | scheduled a/2 | - | completed a"
    )
    assert last(*renewed, poll(2, 3), poll(3, 4, A, new)) == "started a/2, scheduled a/3"


def test_a_reboot_while_nobody_watched() -> None:
    """What is gone on the next boot was cancelled only if NotBefore had not passed."""
    for seconds, outcome in ((840, "cancelled"), (900, "vanished"), (960, "vanished")):
        gone = poll(seconds, 2, restart=True, boot=1)
        assert last(poll(0, 1, A), gone) == f"{outcome} a"
        assert last(poll(0, 1, A), gone._replace(boot=0)) == "cancelled a"
    at_any_moment = poll(0, 1, event(NotBefore=""))
    assert last(at_any_moment, poll(60, 2, restart=True, boot=1)) == "vanished a"
    assert last(poll(0, 1, STARTED), poll(960, 2, restart=True, boot=1)) == "completed a"


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
    assert last(poll(0, 1, A), poll(1, 2, new, event("C", "Started"))) == "cancelled a, started b, started c"
    assert last(poll(0, 1, A), poll(1, 2, A, new)) == "started b"
    assert last(poll(0, 1, A), poll(1, 2, event("B"))) == "cancelled a, scheduled b"
    known = poll(0, 1, event("B")), poll(1, 2), poll(2, 3, A), poll(3, 4, new)
    assert last(*known) == "cancelled a, started b/2"
