"""The running program under more than it will ever see: times, memory, threads and files stay bounded."""

import asyncio
import base64
import contextlib
import gzip
import http.client
import itertools
import json
import multiprocessing
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import bcrypt
import pytest
from prometheus_client.openmetrics import parser as openmetrics_parser

from exporter.model.events import EVENT_TYPES
from tests.builders import body, raw_event
from tests.end_to_end.program import eventually, exporter, free_port
from tests.http_server import Connection, HttpServer, Request, answer, serving
from tests.notifications.receivers import http_receiver

MANY = 10_000
# Each many times what it takes on a small machine; without bounds it would be minutes and gibibytes.
ANSWER_SECONDS = 60.0
MOST_MIB = 400
OPENMETRICS = {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"}


class Running(NamedTuple):
    """The program, an IMDS whose answer is the first of ``documents``, and where it answers itself."""

    process: "subprocess.Popen[bytes]"
    port: int
    documents: list[bytes]
    imds: HttpServer
    log: Path
    authorization: str = ""

    def get(self, path: str, method: str = "GET", **headers: str) -> bytes:
        """Ask once, within the time that an answer may take; return the body of a 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        with contextlib.closing(connection):
            known = {"Authorization": self.authorization} if self.authorization else {}
            connection.request(method, path, headers=known | headers)
            answered = connection.getresponse()
            content = answered.read()
            assert answered.status == 200, content[:200]
            return gzip.decompress(content) if answered.getheader("Content-Encoding") == "gzip" else content

    def show(self, document: bytes, incarnation: int) -> None:
        """Set the document of IMDS, and wait until the program has processed it."""
        self.documents[0] = answer(document)
        eventually(lambda: json.loads(self.get("/api/v1/status"))["document_incarnation"] == incarnation)

    def value(self, series: str) -> float:
        """Return a series of the metrics."""
        lines = self.get("/metrics").decode().splitlines()
        name = f"azure_scheduled_events_{series} "
        return next(float(line[len(name) :]) for line in lines if line.startswith(name))

    def status(self, key: str) -> int:
        """Return a number of /proc/PID/status: VmRSS and VmHWM in KiB, Threads."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition(f"{key}:")[2].split()[0])

    def files(self) -> int:
        """Count the open files."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def stop(self) -> str:
        """End it as a service manager does, in good order; return its log."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0
        text = self.log.read_text()
        assert "raceback" not in text
        return text


@contextlib.contextmanager
def running(folder: Path, *flags: str, config: str = "{}", authorization: str = "") -> Iterator[Running]:
    """Run it with a configuration against an IMDS that is idle at first."""
    documents = [answer(body(incarnation=1))]

    def azure(connection: Connection, _: Request) -> None:
        connection.send(documents[0])

    file, log, port = folder / "config.yml", folder / "log", free_port()
    file.write_text(config)
    flags = ("--instance.name", "WestNO_0", "--config.file", str(file), *flags)
    with serving(azure) as imds, exporter(imds.url, folder / "state", port, *flags, log=log) as process:
        found = Running(process, port, documents, imds, log, authorization)
        eventually(lambda: found.get("/-/ready"))
        yield found


def many(incarnation: int, **fields: Any) -> bytes:
    """Return ten thousand events of all types."""
    return body(
        *(
            raw_event(EventId=f"{number:032x}", EventType=EVENT_TYPES[number % 5], **fields)
            for number in range(MANY)
        ),
        incarnation=incarnation,
    )


@pytest.mark.timeout(700)
def test_ten_thousand_events(tmp_path: Path) -> None:
    """All are processed, scraped, shown, decided and reported in digests, and leave nothing behind."""
    with http_receiver() as receiver:
        refused = threading.Event()

        def refuse(_: bytes) -> int:
            refused.set()
            return 500

        receiver.mood = refuse
        config = f"""
metrics: {{events: all, resources: true}}
notifications: {{targets: [{{name: t, url: "json://{receiver.authority}"}}]}}
approval: {{mode: dry_run, leader: any, rules: [{{name: all, action: approve}}]}}
"""
        with running(tmp_path, config=config) as program:
            program.show(many(2), 2)
            assert refused.wait(60)
            receiver.mood = 200
            exposed = program.get("/metrics", **OPENMETRICS)
            assert exposed.count(b"\nazure_scheduled_events_event_info{") == MANY
            assert exposed.count(b"\nazure_scheduled_events_event_resource_info{") == 2 * MANY
            assert len(program.get("/")) < 200_000
            assert len(json.loads(program.get("/api/v1/events"))["current"]) == MANY
            decided = 'approvals_total{outcome="dry_run",rule="all"}'
            # To read its metrics keeps the program busy for a while.
            eventually(lambda: program.value(decided) == MANY, within=200, every=1)
            pending = 'notifications_pending{target="t"}'
            eventually(lambda: program.value(pending) == 0, within=200, every=1)
            told = b"".join(received.body for received in receiver.requests)
            # What takes too long to be answered is sent again.
            found = set(re.findall(rb"\b[0-9a-f]{32}\b", told))
            assert found == {b"%032x" % number for number in range(MANY)}
            assert len(receiver.requests) < 200
            program.show(body(incarnation=3), 3)
            assert len(program.get("/metrics")) < 100_000
            assert program.status("VmHWM") < MOST_MIB * 1024
            program.stop()


def test_odd_labels_please_promtool(tmp_path: Path) -> None:
    """Quotes, newlines, NUL and halves of characters: Prometheus' own parsers take the real exposition."""
    promtool = shutil.which("promtool")
    assert promtool, "promtool is not installed; make test installs it"
    odd = ['"', "\\", "\n", "\r\n", "\0", "\u2028", "\u202e", "\x1b[2J", "{}=,", "😀"]
    odd += ["\ud800", "\udfff\ud800", "# EOF\n"]
    events = [
        raw_event(
            EventId=f"{number}{text}",
            EventType=f"a{text}",
            Description=text * 3,
            Resources=["WestNO_0", text],
        )
        for number, text in enumerate(odd)
    ]
    with running(tmp_path, config="metrics: {resources: true}") as program:
        program.show(body(*events, incarnation=2), 2)
        plain = program.get("/metrics")
        checked = subprocess.run(
            [promtool, "check", "metrics"], input=plain, capture_output=True, check=False
        )
        assert (checked.returncode, checked.stderr) == (0, b"")
        families = openmetrics_parser.text_string_to_metric_families(
            program.get("/metrics", **OPENMETRICS).decode()
        )
        samples = [sample for family in families for sample in family.samples]
        shown = {sample.labels["description"] for sample in samples if sample.name.endswith("_event_info")}
        # Half a character is not text.
        assert {text * 3 for text in odd if text.isascii() or text == "😀"} <= shown
        assert "???" in shown
        listed = json.loads(program.get("/api/v1/events"))["current"]
        assert "\0\0\0" in {event["description"] for event in listed}
        assert b"\x1b" not in program.stop().encode()


def test_five_hundred_idle_connections(tmp_path: Path) -> None:
    """Scrapes go on among them, and the program holds no more of them than it means to."""
    with running(tmp_path) as program, contextlib.ExitStack() as stack:
        before = program.status("VmRSS")
        for number in range(500):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", program.port), timeout=30))
            peer.sendall(b"" if number % 2 else b"GET /metrics HTTP/1.1\r\nHo")
            if number % 50 == 0:
                program.get("/metrics")
        assert program.files() < 300
        assert program.status("VmRSS") - before < 16 * 1024
        program.stop()


def test_fifty_peers_that_ask_and_never_read(tmp_path: Path) -> None:
    """Two hundred pipelined scrapes by each client take no memory, and do not delay others."""
    with running(tmp_path) as program, contextlib.ExitStack() as stack:
        program.get("/metrics")
        before = program.status("VmRSS")
        for _ in range(50):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", program.port), timeout=30))
            peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 200)
        for _ in range(3):
            program.get("/metrics")
        assert program.status("VmRSS") - before < 16 * 1024
        program.stop()


async def guess(port: int, number: int) -> None:
    """Try wrong passwords forever, each over its own connection."""
    for trial in itertools.count():
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            guessed = base64.b64encode(f"prom:{number} {trial}".encode()).decode()
            request = f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {guessed}\r\n\r\n"
            writer.write(request.encode())
            await reader.read(1000)
            writer.close()


async def send_half(port: int, number: int) -> None:
    """Send incomplete requests forever, and leave them open until the server closes them."""
    headers = b"a: b\r\n" * 1000 if number % 2 else b"a: " + b"b" * 15_000
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n" + headers)
            writer.write(b"\r\n" + b"x" * 8000)
            await reader.read(1000)
            writer.close()


def attack(kind: str, port: int) -> None:
    """Attack a port over 260 connections, until this process ends."""

    async def run() -> None:
        one = {"guess": guess, "send_half": send_half}[kind]
        await asyncio.gather(*(one(port, number) for number in range(260)))

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["guess", "send_half"])
def test_an_attack_keeps_out_nobody_who_is_known(kind: str, tmp_path: Path) -> None:
    """Every scrape with a password that was right before succeeds, and memory stays within 8 MiB."""
    web = tmp_path / "web.yml"
    web.write_text(f"basic_auth_users: {{prom: '{bcrypt.hashpw(b'right', bcrypt.gensalt(10)).decode()}'}}")
    right = "Basic " + base64.b64encode(b"prom:right").decode()
    with running(tmp_path, "--web.config.file", str(web), authorization=right) as program:
        kept = http.client.HTTPConnection("127.0.0.1", program.port, timeout=ANSWER_SECONDS)
        for _ in range(5):
            program.get("/metrics")
        before = program.status("VmRSS")
        attacker = multiprocessing.get_context("spawn").Process(target=attack, args=(kind, program.port))
        attacker.start()
        try:
            eventually(lambda: program.files() > 100)
            for _ in range(10):
                program.get("/metrics")
                kept.request("GET", "/metrics", headers={"Authorization": right})
                assert kept.getresponse().read().startswith(b"#")
        finally:
            attacker.kill()
            attacker.join()
        kept.close()
        assert program.status("VmHWM") - before < 8 * 1024
        program.stop()


def test_a_flood_of_reloads(tmp_path: Path) -> None:
    """Each is answered, and none leaves a thread, a file or a poll too many."""
    with running(tmp_path, "--web.enable-lifecycle") as program:
        program.get("/-/reload", "POST")
        threads, files, memory = program.status("Threads"), program.files(), program.status("VmRSS")
        asked, begun = len(program.imds.requests), time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: program.get("/-/reload", "POST"), range(300)))
        eventually(lambda: program.status("Threads") <= threads + 8)
        eventually(lambda: program.files() <= files + 4)
        assert program.status("VmRSS") - memory < 16 * 1024
        # Five a second, as IMDS asks for, and what was saved up before.
        assert len(program.imds.requests) - asked <= 5 * (time.monotonic() - begun) + 10
        program.stop()
