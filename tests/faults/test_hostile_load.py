"""The running program under more than it will ever see: times, memory, threads and files stay bounded."""

import base64
import json
import re
import select
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import bcrypt

from exporter.model.documents import MOST_EVENTS
from exporter.model.events import EVENT_TYPES
from tests.builders import body, raw_event
from tests.end_to_end.program import eventually, resident
from tests.faults.documents import LARGEST, largest
from tests.faults.running import ANSWER_SECONDS, running
from tests.receivers import http_receiver

# As the contract promises, beyond what an idle program takes.
MOST_MIB = 64
MOST_STATE_MIB = 16
OPENMETRICS = {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"}


def test_a_thousand_events(tmp_path: Path) -> None:
    """All are processed, scraped, shown, decided and told; nothing is left."""
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
            idle = resident(program.process.pid)
            every = [raw_event(EventId=f"{n:032x}", EventType=EVENT_TYPES[n % 5]) for n in range(MOST_EVENTS)]
            program.show(body(*every, incarnation=2), 2)
            assert refused.wait(60)
            receiver.mood = 200
            exposed = program.get("/metrics", **OPENMETRICS)
            assert exposed.count(b"\nazure_scheduled_events_event_info{") == MOST_EVENTS
            assert exposed.count(b"\nazure_scheduled_events_event_resource_info{") == 2 * MOST_EVENTS
            assert len(program.get("/")) < 200_000
            assert len(json.loads(program.get("/api/v1/events"))["current"]) == MOST_EVENTS
            decided = 'approvals_total{outcome="dry_run",rule="all"}'
            eventually(lambda: program.value(decided) == MOST_EVENTS, within=200, every=1)
            pending = 'notifications_pending{target="t"}'
            eventually(lambda: program.value(pending) == 0, within=200, every=1)
            told = b"".join(received.body for received in receiver.requests)
            # What takes too long to be answered is sent again.
            assert len(set(re.findall(rb"\b[0-9a-f]{32}\b", told))) == MOST_EVENTS
            program.show(body(incarnation=3), 3)
            assert len(program.get("/metrics")) < 100_000
            assert resident(program.process.pid, "VmHWM") - idle < MOST_MIB
            assert "messages dropped" not in program.stop()


def test_no_document_takes_the_memory(tmp_path: Path) -> None:
    """Documents as large as they may be, other ones at each poll, while neither targets nor hooks succeed."""
    config = """
metrics: {events: all, resources: true}
notifications: {targets: [{name: a, url: "json://127.0.0.1:1"}, {name: b, url: "json://127.0.0.1:1"}]}
hooks: [{name: h, command: [/bin/false]}]
"""
    with running(tmp_path, config=config) as program:
        idle = resident(program.process.pid)
        # Each twice in a row; the siege shows each alone for longer.
        for number in range(2, 2 + 2 * len(LARGEST)):
            program.show(largest(LARGEST[number // 2 - 1], number), number, within=120)
            program.get("/metrics")
            program.get("/api/v1/events")
        assert resident(program.process.pid, "VmHWM") - idle < MOST_MIB
        assert (tmp_path / "state" / "state.db").stat().st_size < MOST_STATE_MIB * 2**20
        program.stop()


def basic(user: str) -> str:
    return "Basic " + base64.b64encode(user.encode()).decode()


def test_guesses_do_not_delay_the_stop(tmp_path: Path) -> None:
    """Neither one that is being checked, which may take days, nor those that wait."""
    web, hashed = tmp_path / "web.yml", bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    web.write_text(f"basic_auth_users: {{known: '{hashed}', dear: '$2b$31${'.' * 53}'}}")
    guess = f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: {basic('dear:x')}\r\n\r\n".encode()
    flags = ("--web.config.file", str(web))
    with running(tmp_path, *flags, authorization=basic("known:right")) as program, ExitStack() as stack:
        address = ("127.0.0.1", program.port)
        peers = [stack.enter_context(socket.create_connection(address, ANSWER_SECONDS)) for _ in range(8)]
        for peer in peers:
            peer.sendall(guess)
        # Half of them are refused at once.
        eventually(lambda: len(select.select(peers, [], [], 0)[0]) == 4)
        program.stop()
