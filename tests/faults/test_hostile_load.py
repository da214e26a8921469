"""The running program under more than it will ever see: times, memory, threads and files stay bounded."""

import base64
import contextlib
import http.client
import json
import re
import threading
from pathlib import Path

import bcrypt
import pytest

from exporter.model.events import EVENT_TYPES
from tests.builders import body, raw_event
from tests.end_to_end.program import eventually, resident
from tests.faults.attackers import attacked
from tests.faults.running import ANSWER_SECONDS, Running, running
from tests.notifications.receivers import http_receiver

MANY = 10_000
# Of one document, as the threat model promises.
MOST_TOLD = 2000
# Many times what it takes; without bounds it would be gibibytes.
MOST_MIB = 400
OPENMETRICS = {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"}


@pytest.mark.timeout(700)
def test_ten_thousand_events(tmp_path: Path) -> None:
    """All are processed, scraped, shown and decided; the gravest are reported in digests; nothing is left."""
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
            every = [raw_event(EventId=f"{n:032x}", EventType=EVENT_TYPES[n % 5]) for n in range(MANY)]
            program.show(body(*every, incarnation=2), 2)
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
            assert len(found) == MOST_TOLD
            assert {EVENT_TYPES[int(event_id, 16) % 5] for event_id in found} <= {"Preempt", "Terminate"}
            assert len(receiver.requests) < 100
            program.show(body(incarnation=3), 3)
            assert len(program.get("/metrics")) < 100_000
            assert resident(program.process.pid, "VmHWM") < MOST_MIB
            written = program.stop()
            assert f"told={MOST_TOLD} left_out={MANY - MOST_TOLD}" in written
            assert "messages dropped" not in written


def scrape(connection: http.client.HTTPConnection, authorization: str) -> None:
    """Scrape once over a connection that is kept."""
    connection.request("GET", "/metrics", headers={"Authorization": authorization})
    assert connection.getresponse().read().startswith(b"#")


def scrape_anew(program: Running) -> None:
    """Scrape over a new connection, and once more if it was closed.

    On a busy machine this process may not run for a while between the connection and its request. If as many
    others as there may be connect meanwhile, the server closes it, as it cannot know whose it is.
    """
    with contextlib.suppress(ConnectionError):
        program.get("/metrics")
        return
    program.get("/metrics")


@pytest.mark.parametrize("kind", ["guess", "send_half"])
def test_an_attack_keeps_out_nobody_who_is_known(kind: str, tmp_path: Path) -> None:
    """Scrapes with a password that was right before succeed, and memory stays within 16 MiB."""
    web = tmp_path / "web.yml"
    web.write_text(f"basic_auth_users: {{prom: '{bcrypt.hashpw(b'right', bcrypt.gensalt(10)).decode()}'}}")
    right = "Basic " + base64.b64encode(b"prom:right").decode()
    with running(tmp_path, "--web.config.file", str(web), authorization=right) as program:
        kept = http.client.HTTPConnection("127.0.0.1", program.port, timeout=ANSWER_SECONDS)
        for _ in range(5):
            program.get("/metrics")
            scrape(kept, right)
        before, files = resident(program.process.pid), program.files()
        with attacked(kind, program.port):
            # Wrong passwords are refused at once, but for those that wait to be checked.
            eventually(lambda: program.files() > files + 10)
            for _ in range(10):
                scrape_anew(program)
                scrape(kept, right)
        kept.close()
        assert resident(program.process.pid, "VmHWM") - before < 16
        program.stop()
