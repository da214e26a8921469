"""The command `approve`, run as users run it."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.simulator import Fault, Simulator, SimulatorServer
from tests.end_to_end.approvals_group import HALL, plan, scenario
from tests.end_to_end.program import INTERRUPTIBLE, eventually

VM = HALL[0]


class Desk:
    """Where a person works: a simulated VM with three freezes pending."""

    def __init__(self, simulator: Simulator, url: str) -> None:
        self.simulator = simulator
        self.words = [sys.executable, "-m", "exporter", "approve", "--imds.endpoint", url]
        pending = (plan(), plan("Reboot"), plan(vms=()))
        self.first, self.second, self.nowhere = simulator.start_scenario(scenario(*pending))

    def approve(self, *words: str, say: str = "") -> "subprocess.CompletedProcess[str]":
        """Run the command to its end; ``say`` is its standard input."""
        return subprocess.run(
            [*self.words, *words], input=say, capture_output=True, text=True, timeout=120, check=False
        )

    def begin(self, *words: str) -> "subprocess.Popen[str]":
        """Start the command with pipes."""
        pipe = subprocess.PIPE
        command = [*INTERRUPTIBLE, *self.words, *words]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    @property
    def approved(self) -> list[str]:
        """The ids that Azure got."""
        return [approval.event_id for approval in self.simulator.approvals]


@pytest.fixture
def desk() -> Iterator[Desk]:
    """Return a desk, until the end of the test."""
    simulator = Simulator(vm_name=VM, requests_per_second=0)
    with SimulatorServer(simulator) as server:
        yield Desk(simulator, server.url)


def test_it_shows_asks_and_posts(desk: Desk) -> None:
    """The event and every VM that it affects are shown before the question; a yes approves."""
    done = desk.approve(desk.first.lower(), say="y\n")
    assert done.returncode == 0, done.stderr
    shown, _, after = done.stdout.partition("Let this event start now, for all VMs named above? [y/N]: ")
    assert f"{desk.first} affects 3 VMs: web_0, web_1, web_2" in shown
    assert "Freeze  Scheduled" in shown
    assert "affects this VM: web_0, web_1, web_2" in shown
    assert after == f"Approved: {desk.first}\n"
    assert desk.approved == [desk.first]


@pytest.mark.parametrize("say", ["n\n", "\n", ""])
def test_anything_but_a_yes_approves_nothing(desk: Desk, say: str) -> None:
    """No, an empty line, and an input that ends: status 1, no POST."""
    done = desk.approve(desk.first, say=say)
    assert done.returncode == 1
    assert done.stdout.endswith("Nothing was approved.\n")
    assert desk.approved == []


def test_without_any_input_it_approves_nothing(desk: Desk) -> None:
    """A standard input that is closed altogether is no yes, and no traceback."""
    closing = ["sh", "-c", 'exec "$@" <&-', "sh", *desk.words, desk.first]
    done = subprocess.run(closing, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.endswith("Nothing was approved.\n")
    assert desk.approved == []


def test_yes_asks_nothing(desk: Desk) -> None:
    """--yes needs no input; several ids go in one request, each once, one without VMs too."""
    done = desk.approve("--yes", desk.first, desk.second, desk.nowhere, desk.first.lower())
    assert done.returncode == 0
    assert "Let these" not in done.stdout
    assert f"{desk.nowhere} affects 0 VMs: not said by Azure" in done.stdout
    assert desk.approved == [desk.first, desk.second, desk.nowhere]


def test_wait_ends_with_the_start(desk: Desk) -> None:
    """--wait returns once the event is no longer Scheduled, and prints the outcome with its id."""
    done = desk.approve("--yes", "--wait", desk.first)
    assert done.returncode == 0
    assert done.stdout.endswith(f"{desk.first} has started\n")


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"EventStatus": "STARTED"}, 0, "has started"),
        ({"EventStatus": "Started", "EventId": "0b36ad1a-6c9c-4b7a-a2ef-1d9d3a9a9e0c"}, 0, "has started"),
        ({"EventStatus": "completed"}, 0, "has completed"),
        ({"EventStatus": "Canceled"}, 3, "was cancelled before it started"),
        (None, 3, "was cancelled before it started"),
    ],
)
def test_wait_tells_the_outcomes_apart(
    desk: Desk, change: dict[str, str] | None, status: int, said: str
) -> None:
    """The exit status is 0 for started, under a new id too, and completed; 3 for cancelled."""
    document = json.loads(desk.simulator.document("2020-07-01"))
    desk.simulator.set_document(document)
    with desk.begin("--yes", "--wait", desk.first) as process:
        eventually(lambda: desk.approved)
        event, *others = document["Events"]
        listed = others if change is None else [event | change, *others]
        incarnation = document["DocumentIncarnation"] + 1
        desk.simulator.set_document({"DocumentIncarnation": incarnation, "Events": listed})
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (status, "")
    assert out.endswith(f"{desk.first} {said}\n")


def test_wait_ends_with_its_timeout(desk: Desk) -> None:
    """What has not started in time is named: status 1."""
    desk.simulator.set_document(desk.simulator.document("2020-07-01"))
    done = desk.approve("--yes", "--wait", "--timeout", "1s500ms", desk.first)
    assert (done.returncode, done.stderr) == (1, "")
    last = f"Not started within 1s500ms: {desk.first}; what was approved stays approved.\n"
    assert done.stdout.endswith(last)
    assert "is not a valid duration" in desk.approve("--timeout", "soon", desk.first).stderr


def test_a_moment_of_trouble_is_waited_out(desk: Desk) -> None:
    """A POST that is throttled once is repeated, and succeeds."""
    desk.simulator.set_fault(Fault("throttle", method="POST", count=1))
    done = desk.approve("--yes", "--wait", desk.first)
    assert done.returncode == 0
    assert "status 429" in done.stderr
    assert desk.approved == [desk.first]


def test_lasting_trouble_ends_the_waiting(desk: Desk, tmp_path: Path) -> None:
    """If Azure stops responding, the last line has that error: status 1, no traceback."""
    file = tmp_path / "exporter.yml"
    file.write_text("imds: {poll_interval: 200ms}")
    desk.simulator.set_document(desk.simulator.document("2020-07-01"))
    with desk.begin("--yes", "--wait", "--config.file", str(file), desk.first) as process:
        eventually(lambda: desk.approved)
        desk.simulator.set_fault(Fault("drop"))
        out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert out.endswith("Ctrl-C ends the waiting alone.\n")
    *warnings, last = err.splitlines()
    assert len(warnings) == 3
    assert all(line.startswith("warning: GET ") for line in warnings)
    assert last.startswith("azure-scheduled-events-exporter: GET ")


def test_ctrl_c_ends_the_waiting(desk: Desk) -> None:
    """An interrupted wait prints that the approval stays in effect."""
    desk.simulator.set_document(desk.simulator.document("2020-07-01"))
    with desk.begin("--yes", "--wait", desk.first) as process:
        eventually(lambda: desk.approved)
        eventually(lambda: desk.simulator.picture().polls >= 4)
        process.send_signal(signal.SIGINT)
        said, wrong = process.communicate(timeout=120)
    assert process.returncode == 1
    assert said.endswith("what was approved stays approved.\n")
    assert wrong == ""


def test_unknown_and_started_events(desk: Desk) -> None:
    """Where one id is not pending, nothing at all is approved: status 1 and a line that names it."""
    desk.simulator.approve([desk.second])
    unknown = desk.approve("--yes", desk.first, "nonsense\x1b[31m")
    assert unknown.returncode == 1
    assert "nonsense?[31m is not pending; nothing was approved. Pending events: " in unknown.stderr
    assert desk.first in unknown.stderr
    started = desk.approve("--yes", desk.first, desk.second)
    assert started.returncode == 1
    assert f"{desk.second} is Started already; nothing was approved" in started.stderr
    assert desk.approved == [desk.second]


@pytest.mark.parametrize("change", ["starts", "grows", "goes"])
def test_a_yes_is_for_what_was_shown(desk: Desk, change: str) -> None:
    """If the event changes before the confirmation, nothing is approved."""
    with desk.begin(desk.first) as process:
        eventually(lambda: desk.simulator.picture().polls == 1)
        if change == "starts":
            desk.simulator.approve([desk.first])
        elif change == "goes":
            desk.simulator.cancel(desk.first)
        else:
            body = desk.simulator.document("2020-07-01")
            desk.simulator.set_document(body.replace(b'"web_0"', b'"web_0","web_9"'))
        before = desk.approved
        said, wrong = process.communicate("y\n", timeout=120)
    assert process.returncode == 1
    assert "nothing was approved" in wrong
    assert "Approved" not in said
    assert desk.approved == before


def test_azures_refusal_is_passed_on(desk: Desk) -> None:
    """Status 1 and Azure's own words, no traceback, where the POST fails."""
    desk.simulator.set_fault(Fault("error", method="POST"))
    done = desk.approve("--yes", desk.first)
    assert done.returncode == 1
    assert "status 500" in done.stderr
    assert "Approved" not in done.stdout
    assert len(done.stderr.splitlines()) == 1
