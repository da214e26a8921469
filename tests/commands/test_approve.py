from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.clock import SystemClock
from exporter.commands import approve as manual
from exporter.config import Config, Imds, Instance
from exporter.errors import ExporterError, ImdsError
from tests import http_server
from tests.builders import FREEZE_ID, body, raw_event


class Azure:
    """Answers requests from a script of documents and statuses; the last one is repeated."""

    def __init__(self) -> None:
        self.scripts: dict[str, list[bytes | int]] = {"GET": [], "POST": [b""]}
        self.answered: list[str] = []
        self.url = ""

    def respond(self, connection: http_server.Connection, request: http_server.Request) -> None:
        """Answer one request; 0 closes the connection."""
        script = self.scripts[request.method]
        answer = script.pop(0) if len(script) > 1 else script[0]
        self.answered.append(request.method)
        if answer == 0:
            connection.hang_up()
        elif isinstance(answer, int):
            connection.send(http_server.answer(b"said so", f"{answer} Status"))
        else:
            connection.send(http_server.answer(answer))

    def approve(self, *ids: str, wait: float | None = 60.0, name: str = "WestNO_0") -> int:
        """Run the command, without asking."""
        imds = Imds(endpoint=self.url, poll_interval=0.2)
        settings = Config(imds=imds, instance=Instance(name=name))
        return manual.run(settings, ids or (FREEZE_ID,), SystemClock(), yes=True, wait=wait)


@pytest.fixture
def azure() -> Iterator[Azure]:
    script = Azure()
    with http_server.serving(script.respond) as server:
        script.url = server.url
        yield script


def listed(incarnation: int, **statuses: str) -> bytes:
    """Write a document; ``a`` and ``d`` stand for a Freeze, ``b`` for a Reboot, ``c`` for a Redeploy."""
    types = {"a": "Freeze", "b": "Reboot", "c": "Redeploy", "d": "Freeze"}
    events: list[Any] = [
        raw_event(EventId=name, EventType=types[name], EventStatus=status)
        for name, status in statuses.items()
    ]
    return body(*events, incarnation=incarnation)


BEFORE = listed(1, a="Scheduled", b="scheduled", c="SCHEDULED")
OTHERS = [f"WestNO_{number}" for number in range(10, 30)]
HIDDEN = BEFORE.replace(b'"Redeploy"', b'"Redeploy", "Description": 1e999').replace(b": 1,", b": 2,")


@pytest.mark.parametrize(
    ("after", "status", "said"),
    [
        ([listed(2, a="STARTED", b="started", c="Completed")], 0, ["a has started", "c has completed"]),
        ([listed(2, a="started", b="CANCELED", c="started")], 3, ["a has started", "b was cancelled"]),
        ([listed(2, a="started", c="started")], 3, ["b was cancelled before it started"]),
        (
            [listed(3, a="started", b="cancelled")],
            1,
            ["b was cancelled", "c disappeared; whether it started"],
        ),
        # With another type;
        (
            [BEFORE.replace(b"Freeze", b"Reboot"), listed(3, a="started", b="started", c="started")],
            0,
            ["a has started"],
        ),
        # Under a new id; and one that could not be read before it was gone.
        ([listed(2, d="started", b="started", c="started")], 0, ["a has started"]),
        ([HIDDEN, listed(3, a="started", b="started")], 1, ["c disappeared; whether it started"]),
    ],
)
def test_the_worst_outcome_is_the_exit_status(
    azure: Azure, after: list[bytes], status: int, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown is worse than cancelled, which is worse than started; case does not matter."""
    azure.scripts["GET"] = [BEFORE, BEFORE, *after]
    assert azure.approve("a", "b", "c") == status
    out, err = capsys.readouterr()
    assert all(line in out for line in said)
    assert err == ""


def test_an_event_that_is_named_twice(azure: Azure) -> None:
    """It is one event in whatever letters, and approved once."""
    azure.scripts["GET"] = [BEFORE]
    assert azure.approve("a", "A", wait=None) == 0
    assert azure.answered.count("POST") == 1


@pytest.mark.parametrize("trouble", [410, 0])
def test_an_outage_does_not_end_the_waiting(
    azure: Azure, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trouble: int
) -> None:
    """However long IMDS fails within the time limit, the event is followed; one warning is printed."""
    monkeypatch.setattr(manual, "time", SimpleNamespace(sleep=lambda _: None))
    azure.scripts["GET"] = [BEFORE, *[trouble] * 9, listed(2, a="Started")]
    assert azure.approve("a") == 0
    out, err = capsys.readouterr()
    assert out.endswith("a has started\n")
    assert err.count("; trying again\n") == 1


@pytest.mark.parametrize(
    ("resources", "row"),
    [
        ([None, "WestNO_0", *OTHERS], f"WestNO_0, {', '.join(OTHERS)} (incomplete); requested by Platform"),
        ([None], "affects this VM (the names could not be read)"),
    ],
)
def test_names_that_cannot_be_read(
    azure: Azure, capsys: pytest.CaptureFixture[str], resources: list[str | None], row: str
) -> None:
    """Before the question all names are listed, and it is said that more VMs are affected, and why."""
    azure.scripts["GET"] = [body(raw_event(Resources=resources))]
    assert azure.approve(wait=None) == 0
    out, _ = capsys.readouterr()
    assert row in out
    assert f"warning: part of {FREEZE_ID} could not be read (Resources: " in out


def test_a_vm_without_a_name(azure: Azure) -> None:
    """An IMDS that does not return it stops nobody."""
    azure.scripts["GET"] = [BEFORE, 500, BEFORE]
    assert azure.approve("a", wait=None, name="") == 0


def test_what_does_not_start_in_time(azure: Azure, capsys: pytest.CaptureFixture[str]) -> None:
    """After the time limit the exit status is 1, although the other event has started."""
    azure.scripts["GET"] = [BEFORE, BEFORE, listed(2, a="Started", b="Scheduled", c="Scheduled")]
    assert azure.approve("a", "b", wait=0.5) == 1
    out, _ = capsys.readouterr()
    assert out.endswith("a has started\nNot started within 500ms: b; what was approved stays approved.\n")


@pytest.mark.parametrize("trouble", [429, 0])
def test_a_moment_of_trouble_is_waited_out(
    azure: Azure, trouble: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A single 429 or failed connection only causes a warning, at each of the requests."""
    begun = listed(2, a="Started")
    azure.scripts = {"GET": [trouble, BEFORE, trouble, BEFORE, trouble, begun], "POST": [trouble, b""]}
    assert azure.approve("a") == 0
    out, err = capsys.readouterr()
    assert out.endswith(
        "Approved: a\nWaiting for the start. Ctrl-C stops waiting; the approval stays.\na has started\n"
    )
    assert [line.endswith("; trying again") for line in err.splitlines()] == [True] * 4
    assert "".join(azure.answered) == "GETGETPOSTPOSTGETGETGETGET"


def test_an_error_at_the_second_event(azure: Azure, capsys: pytest.CaptureFixture[str]) -> None:
    """What was approved before it is said, so that only the rest has to be approved again."""
    azure.scripts = {"GET": [BEFORE], "POST": [b"", 500]}
    with pytest.raises(ImdsError, match="status 500"):
        azure.approve("a", "b", "c")
    assert capsys.readouterr().out.endswith("Approved: a\n")
    assert azure.answered[-2:] == ["POST", "POST"]


def test_lasting_trouble_is_an_error(azure: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    """After four attempts it fails with Azure's message."""
    azure.scripts["GET"] = [429]
    monkeypatch.setattr(manual, "time", SimpleNamespace(sleep=lambda _: None))
    with pytest.raises(ImdsError, match="said so"):
        azure.approve("a")
    assert azure.answered == ["GET"] * 4


THREE = body(*(raw_event(EventId=name) for name in ("AAAA-1111", "AAAA-2222", "BBBB-3333", "ab")))


@pytest.mark.parametrize(
    ("given", "approved"),
    [("bbbb", "BBBB-3333"), (" AAAA-1 ", "AAAA-1111"), ("AB", "ab")],
)
def test_the_beginning_of_an_id(
    azure: Azure, capsys: pytest.CaptureFixture[str], given: str, approved: str
) -> None:
    """It approves the only event whose id begins like that, without regard to case."""
    azure.scripts["GET"] = [THREE]
    assert azure.approve(given, wait=None) == 0
    assert capsys.readouterr().out.endswith(f"Approved: {approved}\n")


PENDING = "Pending events: AAAA-1111, AAAA-2222, BBBB-3333, ab"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("aaaa", "aaaa is the beginning of several ids; {} Write more of one of: AAAA-1111, AAAA-2222"),
        ("1111", "1111 is not pending; {} " + PENDING),
        ("bbb", "'bbb' is too short; {} Write 4 or more characters of an id. " + PENDING),
    ],
)
def test_the_beginning_of_no_id(azure: Azure, given: str, message: str) -> None:
    """Nothing is approved for that of several ids, of none, or a short one; the error lists ids."""
    azure.scripts["GET"] = [THREE]
    with pytest.raises(ExporterError) as caught:
        azure.approve("BBBB-3333", given, wait=None)
    assert str(caught.value) == message.format("nothing was approved.")
    assert "POST" not in azure.answered
