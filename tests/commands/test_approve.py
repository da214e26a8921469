"""Tests of `exporter.commands.approve`: the outcome of an approved event, and repeated requests."""

from collections.abc import Iterator
from typing import Any

import pytest

from exporter.clock import SystemClock
from exporter.commands import approve as manual
from exporter.commands.approve import Followed
from exporter.config import Config, Endpoint, Imds, Instance, PollInterval
from exporter.errors import ImdsError, PollOutcome
from exporter.model.documents import Defect, Document
from exporter.model.events import ScheduledEvent
from exporter.model.lifecycle import Transition
from tests import http_server
from tests.builders import FREEZE_ID, REBOOT_ID, body, document, raw_event, scheduled, started
from tests.clocks import NOW

HIDDEN = Defect(FREEZE_ID, "event could not be decoded", lost=True)
NAMELESS = Defect("", "event number 0 not understood", lost=True)


def outcomes(*documents: Document, events: tuple[ScheduledEvent, ...] = (scheduled(),)) -> list[Transition]:
    """Return the outcomes in the course of these documents, after one with the events as approved."""
    followed = Followed(document(*events, incarnation=5), events, NOW)
    return [outcome for listed in documents for _, outcome in followed.observe(listed, NOW)]


def test_what_stays_scheduled_is_waited_for() -> None:
    """Neither the same document nor one that differs in other respects is an outcome."""
    moved = scheduled(not_before=None)
    assert outcomes(document(scheduled(), incarnation=5), document(moved, incarnation=9)) == []


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("Started", Transition.STARTED),
        ("Completed", Transition.COMPLETED),
        ("Canceled", Transition.CANCELLED),
    ],
)
@pytest.mark.parametrize("incarnation", [5, 6, 9, 1])
def test_what_azure_says_is_the_outcome(status: str, outcome: Transition, incarnation: int) -> None:
    """A final status ends the wait, even if earlier ones were missed."""
    assert outcomes(document(scheduled(event_status=status), incarnation=incarnation)) == [outcome]


@pytest.mark.parametrize(
    ("incarnation", "outcome"),
    [(6, Transition.CANCELLED), (7, Transition.VANISHED), (5, Transition.VANISHED), (1, Transition.VANISHED)],
)
def test_what_disappears_was_cancelled_if_nothing_was_missed(incarnation: int, outcome: Transition) -> None:
    """Only the very next document proves that it did not start."""
    assert outcomes(document(incarnation=incarnation)) == [outcome]


def test_documents_that_list_it_count() -> None:
    """The proof is that of the last document that listed it, not of the first."""
    listed = document(scheduled(), incarnation=8)
    assert outcomes(listed, document(incarnation=9)) == [Transition.CANCELLED]
    assert outcomes(listed, document(incarnation=10)) == [Transition.VANISHED]


def test_an_unreadable_event_is_not_gone() -> None:
    """It is waited for; once it is gone it may have started while nobody could read it."""
    hidden = document(incarnation=6, defects=(HIDDEN,))
    assert outcomes(hidden) == []
    assert outcomes(hidden, document(incarnation=7)) == [Transition.VANISHED]
    assert outcomes(hidden, document(started(), incarnation=7)) == [Transition.STARTED]
    again = document(scheduled(), incarnation=7)
    assert outcomes(hidden, again, document(incarnation=8)) == [Transition.CANCELLED]


def test_an_event_that_may_be_the_unreadable_one_has_no_outcome() -> None:
    """While an event without a readable id is listed, a missing event may not be gone."""
    assert outcomes(document(incarnation=6, defects=(NAMELESS,))) == [Transition.VANISHED]


def test_an_event_that_goes_on_under_a_new_id_has_started() -> None:
    """So it has over a skipped document, too."""
    renewed = started(event_id=REBOOT_ID, resources=("_westno_1", "WestNO_0"))
    assert outcomes(document(renewed, incarnation=6)) == [Transition.STARTED]
    assert outcomes(document(renewed, incarnation=9)) == [Transition.STARTED]


@pytest.mark.parametrize(
    "fresh",
    [
        (started(event_id="b", event_type="Reboot"),),
        (started(event_id="b", resources=("WestNO_0",)),),
        (started(event_id="b"), started(event_id="c")),
        (scheduled(event_id="b"),),
    ],
    ids=["type", "resources", "two", "Scheduled"],
)
def test_another_event_is_another_event(fresh: tuple[ScheduledEvent, ...]) -> None:
    """What differs, or could be one of several, does not continue the event."""
    assert outcomes(document(*fresh, incarnation=6)) == [Transition.CANCELLED]


def test_an_event_that_was_listed_before_continues_no_other() -> None:
    """A Started event of the same nature that was there already is not its successor."""
    other = started(event_id="b")
    followed = Followed(document(scheduled(), other, incarnation=5), [scheduled()], NOW)
    assert [o for _, o in followed.observe(document(other, incarnation=6), NOW)] == [Transition.CANCELLED]


def test_each_event_has_its_outcome_once() -> None:
    """Those that have one are no longer waited for, and those that were not approved never are."""
    freeze, reboot = scheduled(), scheduled(event_id=REBOOT_ID, event_type="Reboot")
    other = scheduled(event_id="c", event_type="Redeploy")
    followed = Followed(document(freeze, reboot, other, incarnation=5), [freeze, reboot], NOW)
    first = document(started(), reboot, other, incarnation=6)
    assert followed.observe(first, NOW) == [(FREEZE_ID, Transition.STARTED)]
    assert followed.waiting == [reboot]
    assert followed.observe(document(incarnation=7), NOW) == [(REBOOT_ID, Transition.CANCELLED)]
    assert followed.waiting == []


class Azure:
    """Answers requests from a script: a document, or a status; the last of it is answered for good."""

    def __init__(self, *documents: bytes | int, posts: tuple[bytes | int, ...] = (b"",)) -> None:
        self.scripts = {"GET": list(documents), "POST": list(posts)}
        self.answered: list[str] = []
        self.url = ""

    def respond(self, connection: http_server.Connection, request: http_server.Request) -> None:
        """Answer one; 0 is no answer at all."""
        script = self.scripts[request.method]
        answer = script.pop(0) if len(script) > 1 else script[0]
        self.answered.append(request.method)
        if answer == 0:
            connection.hang_up()
        elif isinstance(answer, int):
            connection.send(http_server.answer(b"said so", f"{answer} Status"))
        else:
            connection.send(http_server.answer(answer))

    def approve(self, *ids: str, wait: float | None = 60.0) -> int:
        """Run the command without asking."""
        imds = Imds(endpoint=Endpoint(self.url), poll_interval=PollInterval(0.2))
        settings = Config(imds=imds, instance=Instance(name="WestNO_0"))
        return manual.run(settings, ids or (FREEZE_ID,), SystemClock(), yes=True, wait=wait)


@pytest.fixture
def azure() -> Iterator[Azure]:
    """Serve a script that the test fills in."""
    script = Azure()
    with http_server.serving(script.respond) as server:
        script.url = server.url
        yield script


def listed(incarnation: int, **statuses: str) -> bytes:
    """Write a document; ``a`` stands for a Freeze, ``b`` for a Reboot, ``c`` for a Redeploy."""
    types = {"a": "Freeze", "b": "Reboot", "c": "Redeploy"}
    events: list[Any] = [
        raw_event(EventId=name, EventType=types[name], EventStatus=status)
        for name, status in statuses.items()
    ]
    return body(*events, incarnation=incarnation)


BEFORE = listed(1, a="Scheduled", b="scheduled", c="SCHEDULED")


@pytest.mark.parametrize(
    ("after", "status", "said"),
    [
        (listed(2, a="STARTED", b="started", c="Completed"), 0, ["a has started", "c has completed"]),
        (listed(2, a="started", b="CANCELED", c="started"), 3, ["a has started", "b was cancelled"]),
        (listed(2, a="started", c="started"), 3, ["b was cancelled before it started"]),
        (
            listed(3, a="started", b="cancelled"),
            1,
            ["b was cancelled", "c disappeared; whether it started"],
        ),
    ],
)
def test_the_worst_outcome_is_the_exit_status(
    azure: Azure, after: bytes, status: int, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown is worse than cancelled, and that than started; each is said, and case does not matter."""
    azure.scripts["GET"] = [BEFORE, BEFORE, after]
    assert azure.approve("a", "b", "c") == status
    out, err = capsys.readouterr()
    assert all(line in out for line in said)
    assert err == ""


def test_what_does_not_start_in_time(azure: Azure, capsys: pytest.CaptureFixture[str]) -> None:
    """After the time limit the exit status is 1, although the other event has started."""
    azure.scripts["GET"] = [BEFORE, listed(2, a="Started", b="Scheduled", c="Scheduled")]
    assert azure.approve("a", "b", wait=0.5) == 1
    out, _ = capsys.readouterr()
    assert out.endswith("a has started\nNot started within 500ms: b; what was approved stays approved.\n")


@pytest.mark.parametrize("trouble", [429, 0])
def test_a_moment_of_trouble_is_waited_out(
    azure: Azure, trouble: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """One 429 or failed connection costs a warning: at the first look, at the approval, while waiting."""
    begun = listed(2, a="Started")
    azure.scripts = {"GET": [trouble, BEFORE, trouble, BEFORE, trouble, begun], "POST": [trouble, b""]}
    assert azure.approve("a") == 0
    out, err = capsys.readouterr()
    assert out.endswith("Approved: a\nWaiting for the start; Ctrl-C ends the waiting alone.\na has started\n")
    assert [line.endswith("; trying again") for line in err.splitlines()] == [True] * 4
    assert "".join(azure.answered) == "GETGETPOSTPOSTGETGETGETGET"


@pytest.mark.parametrize("trouble", [500, b"no document"])
def test_waiting_goes_on_after_any_bad_answer(azure: Azure, trouble: bytes | int) -> None:
    """Once the events are approved, failed requests are retried a few times."""
    azure.scripts["GET"] = [BEFORE, trouble, listed(2, a="Started")]
    assert azure.approve("a") == 0


@pytest.mark.parametrize(
    ("gets", "posts", "answered"),
    [
        ([429], [b""], ["GET"] * 4),
        ([BEFORE], [429], ["GET"] + ["POST"] * 4),
        ([BEFORE, 429], [b""], ["GET", "POST"] + ["GET"] * 4),
        ([500], [b""], ["GET"]),
        ([BEFORE], [500], ["GET", "POST"]),
    ],
)
def test_lasting_trouble_is_an_error(
    azure: Azure, gets: list[bytes | int], posts: list[bytes | int], answered: list[str]
) -> None:
    """After four tries it ends with Azure's words; what Azure refuses is not asked for again."""
    azure.scripts = {"GET": gets, "POST": posts}
    with pytest.raises(ImdsError, match="said so") as caught:
        azure.approve("a")
    assert caught.value.reason in (PollOutcome.THROTTLED, PollOutcome.HTTP_ERROR)
    assert azure.answered == answered


def test_the_time_limit_holds_amid_trouble(azure: Azure, capsys: pytest.CaptureFixture[str]) -> None:
    """Repeated requests do not make the waiting longer."""
    azure.scripts["GET"] = [BEFORE, 429]
    assert azure.approve("a", wait=0.1) == 1
    assert "Not started within 100ms: a" in capsys.readouterr().out
