"""The running program notices that it stood still, while an event is Started, and only then."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.hooking import EVENT, Bench, bench, event
from tests.end_to_end.program import eventually, get
from tests.end_to_end.test_notifications import metric

PAUSE = 0.6
STARTED = {"status": "Started", "NotBefore": ""}


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Bench]:
    """Return a bench."""
    with bench(tmp_path) as made:
        made.configure()
        yield made


def threads(process: "subprocess.Popen[bytes]") -> int:
    """Count the threads of the exporter."""
    return len(os.listdir(f"/proc/{process.pid}/task"))  # noqa: PTH208  # nothing but their number matters


def pause(process: "subprocess.Popen[bytes]") -> None:
    """Suspend the exporter."""
    process.send_signal(signal.SIGSTOP)
    time.sleep(PAUSE)
    process.send_signal(signal.SIGCONT)


def pause_until_noticed(process: "subprocess.Popen[bytes]", setting: Bench, event_type: str) -> None:
    """Suspend the exporter until it has counted a pause; it begins to watch soon after an event is shown."""

    def noticed() -> bool:
        pause(process)
        return observed(setting, event_type) >= 1

    eventually(noticed)


def observed(setting: Bench, event_type: str) -> float:
    """Return the number of pauses attributed to events of a type."""
    return metric(setting.url, "observed_pause_seconds_count", event_type=event_type)


def paused(setting: Bench) -> float | None:
    """Return for how long the VM paused during the current event, from the API."""
    (current,) = json.loads(get(f"{setting.url}/api/v1/events"))["current"]
    found: float | None = current["paused_seconds"]
    return found


def total(setting: Bench) -> float:
    """Return for how long the VM paused during Freezes, from the metric."""
    return metric(setting.url, "observed_pause_seconds_sum", event_type="Freeze")


def test_a_pause_during_an_event(setting: Bench) -> None:
    """It is counted under the event's type, and logged beside what was announced."""
    with setting.running() as process:
        setting.tell(event(EventType="Freeze", DurationInSeconds=5, **STARTED))
        pause_until_noticed(process, setting, "Freeze")
        # A busy machine makes more pauses, at any time.
        eventually(lambda: paused(setting) == pytest.approx(total(setting)))
        assert observed(setting, "Reboot") == 0
        told = setting.log("pause")
    longest = max(told, key=lambda line: float(line["seconds"]))
    assert longest["seconds"] >= PAUSE - 0.1
    assert longest["event_ids"] == [EVENT]
    assert longest["event_types"] == ["Freeze"]
    assert longest["announced_seconds"] == [5]


def test_a_pause_of_several_events(setting: Bench) -> None:
    """It counts once for each type that is Started for this VM, and for none that hits another VM alone."""
    with setting.running() as process:
        setting.tell(
            event("a", EventType="Freeze", DurationInSeconds=5, **STARTED),
            event("b", EventType="Freeze", DurationInSeconds=-1, **STARTED),
            event("c", EventType="Reboot", DurationInSeconds=9, **STARTED),
            event("d", EventType="Redeploy", Resources=["demo_1"], **STARTED),
            event("e", EventType="Terminate"),
        )
        pause_until_noticed(process, setting, "Freeze")
        eventually(lambda: observed(setting, "Reboot") == observed(setting, "Freeze"))
        assert [observed(setting, other) for other in ("Redeploy", "Terminate", "Preempt")] == [0, 0, 0]
    assert setting.log("pause")[0]["event_ids"] == ["c", "b", "a"]
    assert setting.log("pause")[0]["announced_seconds"] == [9, None, 5]


def test_a_pause_at_the_end_of_an_event(setting: Bench) -> None:
    """It counts also where the first poll after it finds the event gone."""
    with setting.running() as process:
        setting.tell(event(EventType="Freeze", **STARTED))
        pause_until_noticed(process, setting, "Freeze")
        before = observed(setting, "Freeze")
        process.send_signal(signal.SIGSTOP)
        setting.say()
        time.sleep(PAUSE)
        process.send_signal(signal.SIGCONT)
        eventually(lambda: observed(setting, "Freeze") > before)


def test_nothing_watches_otherwise(setting: Bench) -> None:
    """A thread is there from the first Started event on; before it, and afterwards, no pause is noticed."""
    with setting.running() as process:
        setting.tell(event(), event("other", Resources=["demo_1"], **STARTED))
        idle = threads(process)
        pause(process)
        setting.tell()
        assert setting.log("pause") == []
        setting.tell(event(**STARTED))
        eventually(lambda: threads(process) == idle + 1)
        # The last of its sleeps, of 50 ms, is over with the second poll.
        setting.tell()
        setting.tell()
        noticed = len(setting.log("pause"))
        pause(process)
        setting.tell()
        assert len(setting.log("pause")) == noticed


def test_a_restart_in_the_midst(setting: Bench) -> None:
    """An exporter that starts while an event is Started watches at once."""
    with setting.running():
        setting.tell(event(**STARTED))
    with setting.running() as process:
        eventually(lambda: metric(setting.url, "up") == 1)
        pause_until_noticed(process, setting, "Reboot")
