"""The running program notices that it stood still, whether or not an event is Started."""

import json
import signal
import subprocess
import time
from collections.abc import Callable

from tests.end_to_end.program import eventually, get, metric
from tests.end_to_end.vm import EVENT, Vm, event

# Of a pause, up to the second between two polls is not seen.
PAUSE = 2.2
STARTED = {"status": "Started", "NotBefore": ""}


def pause_until(process: "subprocess.Popen[bytes]", noticed: Callable[[], bool]) -> None:
    """Suspend the exporter until it has noticed: a request to IMDS may be under way at the first time."""

    def paused() -> bool:
        process.send_signal(signal.SIGSTOP)
        time.sleep(PAUSE)
        process.send_signal(signal.SIGCONT)
        return noticed()

    eventually(paused)


def test_a_pause(vm: Vm) -> None:
    """It is counted with its seconds; during an event, under its type, in the API, and in the log."""
    with vm.running() as process:
        pause_until(process, lambda: metric(vm.url, "unannounced_pauses_total") >= 1)
        eventually(lambda: metric(vm.url, "unannounced_pause_seconds_total") >= 1)
        vm.tell(event(EventType="Freeze", DurationInSeconds=5, **STARTED))
        pause_until(process, lambda: metric(vm.url, "observed_pause_seconds_count", event_type="Freeze") >= 1)
        (current,) = json.loads(get(f"{vm.url}/api/v1/events"))["current"]
        assert current["paused_seconds"] >= 1
        told = eventually(lambda: [line for line in vm.log("pause") if line["event_ids"]])
    assert told[0]["event_ids"] == [EVENT]
    assert told[0]["announced_seconds"] == [5]
