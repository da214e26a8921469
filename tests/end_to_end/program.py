"""Starting the program, and Prometheus, as processes; waiting for conditions."""

import atexit
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

# Goes before a command that is to be interrupted: shells start background jobs with SIGINT ignored, which the
# command would inherit, and Python then raises no KeyboardInterrupt.
INTERRUPTIBLE = ("env", "--default-signal=INT,HUP")


def free_port() -> int:
    """Return a port of loopback that is reserved, until this process ends, for servers that a test starts.

    It is bound, so that the system gives it to nobody else, but does not listen: connections are refused, and
    on Linux a server that sets SO_REUSEADDR, as practically all do, can bind it all the same.
    """
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind(("127.0.0.1", 0))
    atexit.register(reservation.close)
    port: int = reservation.getsockname()[1]
    return port


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        text: str = answer.read().decode()
        return text


def metric(url: str, name: str, **labels: str) -> float:
    wanted = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    series = f"azure_scheduled_events_{name}{{{wanted}}}" if labels else f"azure_scheduled_events_{name}"
    line = re.search(rf"^{re.escape(series)} (\S+)$", get(f"{url}/metrics"), re.MULTILINE)
    assert line, f"{name} {wanted}"
    return float(line[1])


def eventually(condition: Callable[[], T], *, within: float = 60.0, every: float = 0.05) -> T:
    """Wait until a condition gives something true, and return that; nothing it raises on the way counts."""
    deadline = time.monotonic() + within
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = found = condition()
        except (OSError, urllib.error.URLError, AssertionError) as error:
            last = error
        else:
            if found:
                return found
        time.sleep(every)
    raise AssertionError(f"not so within {within} s; last: {last!r}")


def resident(pid: int | str = "self", figure: str = "VmRSS") -> float:
    """Return the MiB that a process has resident, or, as VmHWM, the most that it had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{figure}:")[2].split()[0]) / 1024


def proportional(pid: int) -> float:
    """Return the MiB of a process, of which it counts its share where others use the same (PSS)."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.partition("\nPss:")[2].split()[0]) / 1024


def children(pid: int) -> list[int]:
    """Return the ids of the processes that the threads of a process have started."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(found) for file in files for found in file.read_text().split()]


def command(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "exporter", *words], capture_output=True, text=True, timeout=120, check=False
    )


@contextlib.contextmanager
def exporter(
    imds: str,
    state: Path,
    port: int,
    *flags: str,
    environ: Mapping[str, str] | None = None,
    log: Path | None = None,
    module: str = "exporter",
    prefix: Sequence[str] = (),
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the exporter against an endpoint, until the end of the block.

    ``log`` is what it writes to, ``prefix`` a command that becomes the one behind it, as setpriv does.
    """
    command = [*prefix, sys.executable, "-m", module, "run", "--imds.endpoint", imds]
    command += ["--state.directory", str(state), "--web.listen-address", f"127.0.0.1:{port}", *flags]
    with Path(log or os.devnull).open("ab") as stream:
        process = subprocess.Popen(command, stderr=stream, env=os.environ | (environ or {}))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def running(program: str, port: int, *flags: str) -> Iterator[str]:
    path = shutil.which(program)
    assert path, f"{program} is not installed; make test installs it"
    command = [path, f"--web.listen-address=127.0.0.1:{port}", *flags]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: get(f"{url}/-/ready"))
        yield url
    finally:
        process.terminate()
        process.wait()


def query(server: str, expression: str) -> list[dict[str, Any]]:
    answer = json.loads(get(f"{server}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"))
    result: list[dict[str, Any]] = answer["data"]["result"]
    return result
