"""The commands, run as users run them."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.simulator import Simulator, SimulatorServer, load_scenarios
from tests.end_to_end.program import eventually, exporter, free_port, get

UP = "azure_scheduled_events_up 1.0"


def command(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "exporter", *words], capture_output=True, text=True, timeout=120, check=False
    )


def test_a_reload_takes_over_a_good_file_and_refuses_a_bad_one(tmp_path: Path) -> None:
    """SIGHUP with a bad file changes nothing and is reported; with a good one it holds."""
    port = free_port()
    file = tmp_path / "config.yml"
    file.write_text("instance: {name: first}\n")
    page = f"http://127.0.0.1:{port}"
    with (
        SimulatorServer(Simulator()) as imds,
        exporter(imds.url, tmp_path / "state", port, "--config.file", str(file)) as process,
    ):
        eventually(lambda: UP in get(f"{page}/metrics"))
        file.write_text("instance: {nam: second}\n")
        process.send_signal(signal.SIGHUP)
        eventually(lambda: json.loads(get(f"{page}/api/v1/status"))["state"] == "degraded")
        assert "config_last_reload_successful 0.0" in get(f"{page}/metrics")
        status = json.loads(get(f"{page}/api/v1/status"))
        assert status["instance"] == "first"
        assert "config.yml:1: instance.nam: unknown key; did you mean name?" in str(status["problems"])
        file.write_text("instance: {name: second}\n")
        process.send_signal(signal.SIGHUP)
        eventually(lambda: json.loads(get(f"{page}/api/v1/status"))["instance"] == "second")
        eventually(lambda: json.loads(get(f"{page}/api/v1/status"))["state"] == "ok")
        assert "config_last_reload_successful 1.0" in get(f"{page}/metrics")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_status_0(tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM and SIGINT end the program in good order, also while IMDS does not answer."""
    port = free_port()
    with exporter(f"http://127.0.0.1:{free_port()}", tmp_path / "state", port) as process:
        eventually(lambda: "azure_scheduled_events_up 0.0" in get(f"http://127.0.0.1:{port}/metrics"))
        process.send_signal(number)
        assert process.wait(30) == 0


def test_a_second_exporter_on_one_state_directory_refuses_to_start(tmp_path: Path) -> None:
    """Two exporters never share a state directory."""
    port, directory = free_port(), tmp_path / "state"
    with exporter(f"http://127.0.0.1:{free_port()}", directory, port):
        eventually(lambda: get(f"http://127.0.0.1:{port}/-/healthy"))
        second = command("run", "--state.directory", str(directory), "--web.listen-address", "127.0.0.1:0")
    assert second.returncode == 1
    assert str(directory) in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config.file", "missing.yml"], "missing.yml: cannot be read: No such file or directory"),
        (["--web.config.file", "missing.yml"], "missing.yml: cannot be read: No such file or directory"),
        (["--web.listen-address", "nonsense"], "nonsense"),
    ],
)
def test_a_bad_flag_gives_status_2_and_a_line(words: list[str], message: str) -> None:
    """What is wrong on the command line is named, without a traceback."""
    done = command("run", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_state_directory_for_everybody_gives_status_2(tmp_path: Path) -> None:
    """Nothing is read or written in a directory that others can write to."""
    directory = tmp_path / "state"
    directory.mkdir()
    directory.chmod(0o777)
    done = command("run", "--state.directory", str(directory), "--web.listen-address", "127.0.0.1:0")
    assert done.returncode == 2
    assert f"{directory} can be written by other users; run: chmod go-w {directory}" in done.stderr
    assert list(directory.iterdir()) == []


def test_events_shows_what_imds_says() -> None:
    """`events` prints a table, and with --json the API's events."""
    simulator = Simulator(requests_per_second=0)
    with SimulatorServer(simulator) as imds:
        assert "No events are pending." in command("events", "--imds.endpoint", imds.url).stdout
        ids = simulator.start_scenario(load_scenarios(["live-migration"])[0])
        shown = command("events", "--imds.endpoint", imds.url).stdout
        assert "Freeze" in shown
        assert ids[0] in shown
        answer = json.loads(command("events", "--json", "--imds.endpoint", imds.url).stdout)
        assert answer["instance"] == "demo_0"
        assert [event["id"] for event in answer["current"]] == list(ids)


def test_events_without_imds_says_so() -> None:
    """`events` gives status 1 and the reason where nothing answers."""
    done = command("events", "--imds.endpoint", f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 1
    assert "refused" in done.stderr
    assert "Traceback" not in done.stderr
