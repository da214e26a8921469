"""Tests of the running program: what a receiver, a reload or a secret may do to it."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.model.lifecycle import Transition
from exporter.simulator import Simulator, SimulatorServer
from tests.builders import raw_event
from tests.end_to_end.program import eventually, exporter, free_port, get
from tests.end_to_end.test_notifications import configuration, metric, reload
from tests.notifications.receivers import http_receiver, mail_receiver

CANARY = "canary0123456789abcdef"
NAME = "demo_0"


def document(number: int, *ids: str) -> dict[str, object]:
    """Return a document with a freeze of this VM for each id."""
    events = [raw_event(EventId=event_id, Resources=[NAME]) for event_id in ids]
    return {"DocumentIncarnation": number, "Events": events}


def command(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of the program to its end."""
    return subprocess.run(
        [sys.executable, "-m", "exporter", *words], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("mood", ["hang", "drip"])
def test_a_hanging_receiver_holds_up_nothing(tmp_path: Path, mood: str) -> None:
    """Other targets, polling and the stop go on while one receiver never answers."""
    simulator = Simulator(vm_name=NAME, requests_per_second=0)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with SimulatorServer(simulator) as imds, http_receiver(mood) as stuck, http_receiver() as well:
        file = configuration(tmp_path, stuck=stuck, well=well)
        flags = ("--config.file", str(file), "--poll.interval", "200ms")
        with exporter(imds.url, tmp_path / "state", port, *flags) as process:
            eventually(lambda: get(f"{url}/-/ready"))
            simulator.set_document(document(1, "a", "b"))
            eventually(lambda: len(well.requests) == 2)
            assert metric(url, "notifications_pending", target="stuck") == 2
            simulator.set_document(document(2, "a", "b", "c"))
            eventually(lambda: len(well.requests) == 3)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        stuck.mood = 200
        stuck.released.set()
        with exporter(imds.url, tmp_path / "state", port, *flags):
            eventually(lambda: len(stuck.requests) == 3)
    assert len(well.requests) == 3


def test_mail_from_a_flag(tmp_path: Path) -> None:
    """One flag is sufficient for mail, with a readable part in plain text."""
    simulator = Simulator(vm_name=NAME, requests_per_second=0)
    port = free_port()
    with SimulatorServer(simulator) as imds, mail_receiver() as mailbox:
        mail = f"mailto://127.0.0.1:{mailbox.port}/?from=azse@example.com&to=ops@example.com"
        with exporter(imds.url, tmp_path / "state", port, "--notify", mail):
            eventually(lambda: get(f"http://127.0.0.1:{port}/-/ready"))
            simulator.set_document(document(1, "a"))
            eventually(lambda: mailbox.mails)
    assert str(mailbox.mails[0]["subject"]).startswith("[INFO] Freeze scheduled: demo_0")
    part = mailbox.mails[0].get_body(("plain",))
    assert part is not None
    lines = part.get_content().splitlines()
    assert "- This VM: demo_0" in lines
    assert "- Resource group: demo" in lines


def test_a_message_links_to_the_page(tmp_path: Path) -> None:
    """Messages link to `web.external_url`, and to the VM in Azure's portal."""
    simulator = Simulator(vm_name=NAME, requests_per_second=0)
    port = free_port()
    with SimulatorServer(simulator) as imds, http_receiver() as receiver:
        file = configuration(tmp_path, chat=receiver)
        page = "https://vm-0.example.com:9843/"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"web": {"external_url": page}}))
        with exporter(imds.url, tmp_path / "state", port, "--config.file", str(file)):
            eventually(lambda: get(f"http://127.0.0.1:{port}/-/ready"))
            simulator.set_document(document(1, "a"))
            eventually(lambda: receiver.requests)
    lines = receiver.requests[0].json["message"].splitlines()
    assert f"- Exporter: <{page}>" in lines
    assert any(
        line.startswith("- Azure portal: <https://portal.azure.com/#resource/subscriptions/")
        for line in lines
    )


def test_a_reload_changes_targets(tmp_path: Path) -> None:
    """A new target gets what happens from then on; a bad one changes nothing."""
    simulator = Simulator(vm_name=NAME, requests_per_second=0)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with SimulatorServer(simulator) as imds, http_receiver() as first, http_receiver() as second:
        file = configuration(tmp_path, first=first)
        flags = ("--config.file", str(file), "--poll.interval", "200ms")
        with exporter(imds.url, tmp_path / "state", port, *flags) as process:
            eventually(lambda: get(f"{url}/-/ready"))
            simulator.set_document(document(1, "a"))
            eventually(lambda: len(first.requests) == 1)
            bad = {"notifications": {"targets": [{"name": "second", "url": f"slack://{CANARY}"}]}}
            file.write_text(json.dumps(bad))
            process.send_signal(signal.SIGHUP)
            eventually(lambda: "does not take this slack:// URL" in get(f"{url}/api/v1/status"))
            assert CANARY not in get(f"{url}/api/v1/status")
            configuration(tmp_path, second=second)
            reload(process, url)
            simulator.set_document(document(2, "a", "b"))
            eventually(lambda: len(second.requests) == 1)
    assert len(first.requests) == 1


def test_no_secret_leaves_the_program(tmp_path: Path) -> None:
    """Logs at every level, the page, the API and the metrics show of a URL no more than scheme and host."""
    simulator = Simulator(vm_name=NAME, requests_per_second=0)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with SimulatorServer(simulator) as imds, http_receiver(500) as receiver:
        secret = f"json://{CANARY}:{CANARY}@{receiver.authority}/{CANARY}?-{CANARY}=1"
        words = [sys.executable, "-m", "exporter", "run", "--imds.endpoint", imds.url, "--log.level", "debug"]
        words += ["--state.directory", str(tmp_path), "--web.listen-address", f"127.0.0.1:{port}"]
        log = tmp_path / "log"
        with log.open("wb") as stream:
            process = subprocess.Popen([*words, "--notify", secret], stderr=stream)
        try:
            eventually(lambda: get(f"{url}/-/ready"))
            simulator.set_document(document(1, "a"))
            eventually(lambda: metric(url, "notifications_total", target="notify-1", outcome="failed") >= 1)
            shown = "".join(get(f"{url}{path}") for path in ("/", "/metrics", "/api/v1/status"))
        finally:
            process.terminate()
            process.wait()
    assert "json://127.0.0.1" in shown
    assert CANARY not in shown
    assert CANARY not in log.read_text()
    assert CANARY not in "".join(path.read_bytes().decode("latin-1") for path in tmp_path.glob("state.db*"))


# The 15 minutes begin before Apprise is imported, which takes a second on a busy machine.
SAMPLE = rf"\(test\) \[WARNING\] Reboot scheduled: {NAME} in 1[45] min.*"


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
        assert len(well.requests) == 1 + len(Transition)
        assert all(NAME in request.json["message"] for request in well.requests)
        done = command("notify-test", "--notify", good, "--notify", bad, "--instance.name", NAME)
    assert done.returncode == 1
    rows = done.stdout.splitlines()
    assert rows[0].split() == ["TARGET", "ADDRESS", "TRANSITION", "ARRIVED", "TOOK", "WHY", "NOT"]
    assert [row.split()[2:4] for row in rows[1:]] == [["scheduled", "yes"], ["scheduled", "NO"]]
    assert "it answered 503 (Service Unavailable)" in rows[2]
    assert "1 of 2 messages did not arrive." in done.stderr
    assert CANARY not in done.stdout + done.stderr


def test_notify_test_without_targets() -> None:
    """Without targets the error explains how to configure one."""
    done = command("notify-test", "--instance.name", NAME)
    assert done.returncode == 1
    assert done.stderr.startswith("There is no target: give --notify URL")


@pytest.mark.parametrize("words", [["run"], ["notify-test"], ["demo"]])
def test_a_bad_target_gives_status_2(words: list[str], tmp_path: Path) -> None:
    """A URL that Apprise does not accept ends the program; its last line has the reason, without the URL."""
    if words == ["run"]:
        words = ["run", "--state.directory", str(tmp_path), "--web.listen-address", "127.0.0.1:0"]
    done = command(*words, "--notify", f"slack://{CANARY}")
    assert done.returncode == 2
    assert "--notify: URL 1: Apprise does not take this slack:// URL" in done.stderr.splitlines()[-1]
    assert CANARY not in done.stderr
