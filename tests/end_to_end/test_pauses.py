"""The running program notices that it stood still, while an event is Started, and only then."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.hooking import EVENT, Bench, bench, event
from tests.end_to_end.program import eventually
from tests.end_to_end.test_notifications import metric

PAUSE = 0.6
STARTED = {"status": "Started", "NotBefore": ""}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Bench]:
    """Return a bench."""
    with bench(tmp_path) as made:
        made.configure()
        yield made


def threads(process: "subprocess.Popen[bytes]") -> int:
    """Count the threads of the exporter."""
    return len(os.listdir(f"/proc/{process.pid}/task"))  # noqa: PTH208  # nothing but their number matters


def pause(process: "subprocess.Popen[bytes]") -> None:
    """Let the exporter stand still."""
    process.send_signal(signal.SIGSTOP)
    time.sleep(PAUSE)
    process.send_signal(signal.SIGCONT)


def observed(house: Bench, event_type: str) -> float:
    """Return the number of pauses attributed to events of a type."""
    return metric(house.url, "observed_pause_seconds_count", event_type=event_type)


def test_a_pause_during_an_event(house: Bench) -> None:
    """It is counted under the event's type, and logged beside what was announced."""
    with house.running() as process:
        house.tell(event(EventType="Freeze", DurationInSeconds=5, **STARTED))
        pause(process)
        eventually(lambda: observed(house, "Freeze") >= 1)
        seen = metric(house.url, "observed_pause_seconds_sum", event_type="Freeze")
        assert observed(house, "Reboot") == 0
    told = house.log("pause")
    longest = max(told, key=lambda line: float(line["seconds"]))
    assert PAUSE - 0.1 <= longest["seconds"] <= seen + 0.001
    assert longest["event_ids"] == [EVENT]
    assert longest["event_types"] == ["Freeze"]
    assert longest["announced_seconds"] == [5]


def test_a_pause_of_several_events(house: Bench) -> None:
    """It counts once for each type that is Started for this VM, and for none that hits another VM alone."""
    with house.running() as process:
        house.tell(
            event("a", EventType="Freeze", DurationInSeconds=5, **STARTED),
            event("b", EventType="Freeze", DurationInSeconds=-1, **STARTED),
            event("c", EventType="Reboot", DurationInSeconds=9, **STARTED),
            event("d", EventType="Redeploy", Resources=["demo_1"], **STARTED),
            event("e", EventType="Terminate"),
        )
        pause(process)
        eventually(lambda: observed(house, "Freeze") >= 1)
        eventually(lambda: observed(house, "Reboot") == observed(house, "Freeze"))
        assert [observed(house, other) for other in ("Redeploy", "Terminate", "Preempt")] == [0, 0, 0]
    assert house.log("pause")[0]["event_ids"] == ["c", "b", "a"]
    assert house.log("pause")[0]["announced_seconds"] == [9, None, 5]


def test_a_pause_at_the_end_of_an_event(house: Bench) -> None:
    """It counts also where the first poll after it finds the event gone."""
    with house.running() as process:
        house.tell(event(EventType="Freeze", **STARTED))
        process.send_signal(signal.SIGSTOP)
        house.say()
        time.sleep(PAUSE)
        process.send_signal(signal.SIGCONT)
        eventually(lambda: observed(house, "Freeze") >= 1)


def test_nothing_watches_otherwise(house: Bench) -> None:
    """A thread is there from Started to the event's end; before and after, a pause is not even noticed."""
    with house.running() as process:
        house.tell(event(), event("other", Resources=["demo_1"], **STARTED))
        idle = threads(process)
        pause(process)
        house.tell(event(**STARTED))
        eventually(lambda: threads(process) == idle + 1)
        house.tell()
        eventually(lambda: threads(process) == idle)
        noticed = len(house.log("pause"))
        pause(process)
        house.tell()
        assert len(house.log("pause")) == noticed
    assert not any(line["seconds"] > PAUSE - 0.1 for line in house.log("pause"))


def test_a_restart_in_the_midst(house: Bench) -> None:
    """An exporter that starts while an event is Started watches at once."""
    with house.running():
        house.tell(event(**STARTED))
    with house.running() as process:
        eventually(lambda: metric(house.url, "up") == 1)
        pause(process)
        eventually(lambda: observed(house, "Reboot") >= 1)
