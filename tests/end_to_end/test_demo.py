import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.program import eventually, free_port, get

PROGRAM = [sys.executable, "-u", "-m", "exporter"]


@contextlib.contextmanager
def running(*words: str, output: Path, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with output.open("wb") as stream:
        environment = os.environ | {"TMPDIR": str(folder)}
        process = subprocess.Popen(
            [*PROGRAM, *words], stdout=stream, stderr=subprocess.STDOUT, env=environment
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_demo_without_a_terminal(tmp_path: Path, number: signal.Signals) -> None:
    """Messages and a table of events come as lines, the page answers, and nothing is left behind."""
    output, folder = tmp_path / "output", tmp_path / "tmp"
    folder.mkdir()
    with running("demo", "--web.listen-address", "127.0.0.1:0", output=output, folder=folder) as process:
        eventually(lambda: "[INFO] Freeze scheduled: demo_0" in output.read_text())
        eventually(lambda: "EVENT ID                              STATUS " in output.read_text())
        (url,) = re.findall(r"API: (http://127\.0\.0\.1:\d+) ", output.read_text())
        assert "Simulated events and times at 60x: 15 minutes take 15 s." in output.read_text()
        page = get(f"{url}/")
        assert "demo_0" in page
        assert "Simulated events and times at 60x" in page
        assert re.search(r"Freeze scheduled: demo_0 at \d\d:\d\d UTC \(\d+ min\)", output.read_text())
        assert "azure_scheduled_events_event_seconds_to_not_before{" in get(f"{url}/metrics")
        process.send_signal(number)
        assert process.wait(30) == 0
    assert "\nTry next:\n" in output.read_text()
    assert "Traceback" not in output.read_text()
    assert list(folder.iterdir()) == []


def test_demo_with_a_target_that_fails(tmp_path: Path) -> None:
    """A line shows why its messages do not arrive, when that is known, and at the end."""
    output, url = tmp_path / "output", f"json://127.0.0.1:{free_port()}/"
    words = ("demo", "--web.listen-address", "127.0.0.1:0", "--notify", url)
    with running(*words, output=output, folder=tmp_path) as process:
        failed = eventually(lambda: re.findall("\n(notify-1 .*: failed: .*)\n", output.read_text()))[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert "it refuses connections" in failed
    assert f"\n{failed}\nTry next:\n" in output.read_text()


def test_demo_on_a_terminal() -> None:
    """Each picture fits on 80 columns and 24 lines, in colour, headline and address included."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    unset = ("NO_COLOR", "COLUMNS", "LINES")
    usual = {name: value for name, value in os.environ.items() if name not in unset}
    process = subprocess.Popen(
        [*PROGRAM, "demo", "--web.listen-address", "127.0.0.1:0"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=usual | {"TERM": "xterm-256color"},
    )
    os.close(slave)
    seen = b""
    try:
        # Until it has been drawn several times with a message.
        while seen.partition(b"Freeze scheduled: demo_0")[2].count(b"\x1b[H") < 5:
            seen += os.read(master, 4096)
    finally:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # Linux's way to say that nobody writes any more
            while piece := os.read(master, 4096):
                seen += piece
        assert process.wait(30) == 0
        os.close(master)
    assert b"\x1b[36m" in seen
    screens = re.sub(rb"\x1b\[[0-9;?]*[a-zA-GI-Z]", b"", seen).decode().split("\x1b[H")[1:-1]
    screens = [screen for screen in screens if screen.strip()]
    assert len(screens) > 3
    for screen in screens:
        lines = screen.replace("\r", "").split("\n")
        assert len(lines) == 24
        assert max(map(len, lines)) <= 80
        assert lines[0].startswith("Simulated events and times at 60x: 15 minutes take 15 s.")
        assert lines[1].startswith("Page, metrics and API: http://127.0.0.1:")


def test_simulate(tmp_path: Path) -> None:
    """It prints the address of each VM, and responds like Azure."""
    output = tmp_path / "output"
    words = ("simulate", "--web.listen-address", "127.0.0.1:0", "--instance.name", "vm_7", "--instances", "2")
    with running(*words, output=output, folder=tmp_path) as process:
        (url,) = eventually(lambda: re.findall(r"at (http://\S+);", output.read_text()))
        eventually(lambda: re.search(r"^vm_0 at http://127.0.0.1:\d+$", output.read_text(), re.MULTILINE))
        request = urllib.request.Request(
            f"{url}/metadata/instance?api-version=2021-12-13", headers={"Metadata": "true"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert b'"name":"vm_7"' in answer.read().replace(b": ", b":")
        with pytest.raises(urllib.error.HTTPError) as caught:
            get(f"{url}/metadata/scheduledevents?api-version=2020-07-01")
        assert caught.value.code == 400
        caught.value.close()
        assert '"speed":1.0,' in get(f"{url}/api/v1/state")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
