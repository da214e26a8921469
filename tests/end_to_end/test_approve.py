import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from exporter.simulator import EventPlan, Scenario, Simulator, SimulatorServer
from tests.end_to_end.program import INTERRUPTIBLE, eventually

HALL = ("web_0", "web_1", "web_2")


def plan(kind: Any = "Freeze", vms: Sequence[str] = HALL) -> EventPlan:
    """Return an event of 15 minutes' notice that lasts for 10, by the names that the VMs have."""
    return EventPlan(type=kind, vms=tuple(vms), notice=900, impact=600, duration_in_seconds=5)


def scenario(*plans: EventPlan) -> Scenario:
    return Scenario(name="story", title="", description="", vms=HALL, events=plans)


class Desk:
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
        pipe = subprocess.PIPE
        command = [*INTERRUPTIBLE, *self.words, *words]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    @property
    def approved(self) -> list[str]:
        return [approval.event_id for approval in self.simulator.approvals]


@pytest.fixture
def desk() -> Iterator[Desk]:
    simulator = Simulator(vm_name=HALL[0], requests_per_second=0)
    with SimulatorServer(simulator) as server:
        yield Desk(simulator, server.url)


def test_it_shows_asks_and_posts(desk: Desk) -> None:
    """The event and every VM that it affects are shown before the question; a yes approves."""
    done = desk.approve(desk.first.lower(), say="y\n")
    assert done.returncode == 0, done.stderr
    shown, _, after = done.stdout.partition("Let this event start now, for all VMs affected? [y/N]: ")
    assert re.search(f"{desk.first}  Scheduled .* Freeze\n", shown)
    assert "affects this VM: web_0, web_1, web_2" in shown
    assert after == f"Approved: {desk.first}\n"
    assert desk.approved == [desk.first]


@pytest.mark.parametrize("source", ["echo n |", "</dev/null", "<&-"])
def test_only_a_yes_approves(desk: Desk, source: str) -> None:
    """A no, the end of the input and a closed one do not, which is printed without a traceback."""
    script = f'{source} "$@"' if source.endswith("|") else f'exec "$@" {source}'
    asking = ["sh", "-c", script, "sh", *desk.words, desk.first]
    done = subprocess.run(asking, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.endswith("Nothing was approved.\n")
    assert desk.approved == []


def test_yes_asks_nothing(desk: Desk) -> None:
    """--yes needs no input; each of several ids is approved once."""
    done = desk.approve(
        "--yes", "--wait", "--timeout", "1m30s", desk.first, desk.second, desk.nowhere, desk.first.lower()
    )
    assert done.returncode == 0
    assert "Let these" not in done.stdout
    assert "affects this VM (Azure names none)" in done.stdout
    assert done.stdout.endswith(f"{desk.nowhere} has started\n")
    assert desk.approved == [desk.first, desk.second, desk.nowhere]


def test_ctrl_c_ends_the_waiting(desk: Desk) -> None:
    """An interrupted wait prints that the approval stays in effect."""
    desk.simulator.set_document(desk.simulator.document("2020-07-01"))
    with desk.begin("--yes", "--wait", desk.first) as process:
        eventually(lambda: desk.approved)
        eventually(lambda: desk.simulator.picture().polls >= 4)
        process.send_signal(signal.SIGINT)
        said, wrong = process.communicate(timeout=120)
    assert process.returncode == 1
    assert said.endswith("Not waiting any longer; what was approved stays approved.\n")
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
    assert (
        f"{desk.second} is Started, and only a Scheduled event can be approved; nothing was approved"
        in started.stderr
    )
    assert desk.approved == [desk.second]


@pytest.mark.parametrize("change", ["starts", "grows"])
def test_a_yes_is_for_what_was_shown(desk: Desk, change: str) -> None:
    """If the event changes before the confirmation, nothing is approved."""
    with desk.begin(desk.first) as process:
        eventually(lambda: desk.simulator.picture().polls == 1)
        if change == "starts":
            desk.simulator.approve([desk.first])
        else:
            body = desk.simulator.document("2020-07-01")
            desk.simulator.set_document(body.replace(b'"web_0"', b'"web_0","web_9"'))
        before = desk.approved
        said, wrong = process.communicate("y\n", timeout=120)
    assert process.returncode == 1
    assert "nothing was approved" in wrong
    assert "Approved" not in said
    assert desk.approved == before
