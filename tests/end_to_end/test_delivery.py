import contextlib
import json
import os
import re
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from exporter.model.lifecycle import Transition
from exporter.model.messages import WatchChange
from exporter.simulator import Simulator, SimulatorServer
from tests.builders import raw_event
from tests.end_to_end.program import children, command, eventually, exporter, free_port, get, metric
from tests.notifications.receivers import http_receiver

CANARY = "canary0123456789abcdef"
NAME = "demo_0"


def document(number: int, *ids: str) -> dict[str, object]:
    events = [raw_event(EventId=event_id, Resources=[NAME]) for event_id in ids]
    return {"DocumentIncarnation": number, "Events": events}


@pytest.mark.parametrize("mood", ["hang", "drip"])
def test_a_hanging_receiver_holds_up_nothing(tmp_path: Path, mood: str) -> None:
    """Other targets, polling and the stop go on while one receiver never answers."""
    simulator = Simulator(vm_name=NAME, requests_per_second=0)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with SimulatorServer(simulator) as imds, http_receiver(mood) as stuck, http_receiver() as well:
        file, receivers = tmp_path / "exporter.yml", {"stuck": stuck, "well": well}
        targets = [{"name": name, "url": f"json://{one.authority}/"} for name, one in receivers.items()]
        file.write_text(json.dumps({"notifications": {"targets": targets}}))
        flags = ("--config.file", str(file), "--poll.interval", "200ms")
        with exporter(imds.url, tmp_path / "state", port, *flags) as process:
            eventually(lambda: get(f"{url}/-/ready"))
            simulator.set_document(document(1, "a", "b"))
            eventually(lambda: len(well.requests) == 2)
            assert metric(url, "notifications_pending", target="stuck") == 2
            simulator.set_document(document(2, "a", "b", "c"))
            # What is not counted yet when the program stops is sent again.
            eventually(lambda: metric(url, "notifications_total", target="well", outcome="delivered") == 3)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        stuck.mood = 200
        stuck.released.set()
        with exporter(imds.url, tmp_path / "state", port, *flags):
            eventually(lambda: len(stuck.requests) == 3)
    assert len(well.requests) == 3


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the process is found in /proc")
def test_kills_of_the_sender_process_lose_nothing(tmp_path: Path) -> None:
    """Before its first message, between messages and while it sends: only what it was sending comes twice."""
    simulator = Simulator(vm_name=NAME, requests_per_second=0)
    names, ids = ("a", "b", "c"), [f"event-{number}" for number in range(60)]
    with SimulatorServer(simulator) as imds, http_receiver() as receiver:
        file, port = tmp_path / "exporter.yml", free_port()
        targets = [{"name": name, "webhook": f"http://{receiver.authority}/{name}"} for name in names]
        file.write_text(json.dumps({"notifications": {"targets": targets}}))
        with exporter(imds.url, tmp_path / "state", port, "--config.file", str(file)) as process:
            eventually(lambda: get(f"http://127.0.0.1:{port}/-/ready"))
            simulator.set_document(document(1, *ids))
            kills = (0, 0, 30, 60, 90)

            def at_least(number: int) -> bool:
                return len(receiver.requests) >= number

            for number in kills:
                eventually(partial(at_least, number))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(eventually(lambda: children(process.pid))[0], signal.SIGKILL)

            def arrived() -> Counter[tuple[str, str]]:
                return Counter((one.path, one.json["subject"]) for one in tuple(receiver.requests))

            eventually(lambda: len(arrived()) == len(names) * len(ids))
    assert arrived().total() <= len(names) * (len(ids) + len(kills))


SAMPLE = rf"\(test\) \[WARNING\] Reboot scheduled: {NAME} at \d\d:\d\d UTC"


def test_notify_test_says_what_arrived() -> None:
    """A sample for every target, with --all of every transition; the status is 0 only if all arrived."""
    with http_receiver() as well, http_receiver(503) as unwell:
        good, bad = f"json://{well.authority}/", f"json://{CANARY}@{unwell.authority}/"
        done = command("notify-test", "--notify", good, "--instance.name", NAME)
        assert done.returncode == 0
        (request,) = well.requests
        assert re.fullmatch(SAMPLE, request.json["title"])
        done = command("notify-test", "--notify", good, "--instance.name", NAME, "--all")
        assert done.returncode == 0
        assert len(well.requests) == 1 + len(Transition) + len(WatchChange)
        assert all(NAME in request.json["message"] for request in well.requests)
        done = command("notify-test", "--notify", good, "--notify", bad, "--instance.name", NAME)
    assert done.returncode == 1
    rows = done.stdout.splitlines()
    assert rows[0].split() == ["TARGET", "ADDRESS", "TRANSITION", "ARRIVED", "TOOK", "REASON"]
    assert [row.split()[2:4] for row in rows[1:]] == [["scheduled", "yes"], ["scheduled", "NO"]]
    assert "it answered 503 (Service Unavailable)" in rows[2]
    assert "1 of 2 messages did not arrive." in done.stderr
    assert CANARY not in done.stdout + done.stderr
