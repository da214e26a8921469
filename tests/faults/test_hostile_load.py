"""The running program under more than it will ever see: what it takes stays bounded, and it stops in time."""

import base64
import json
import re
import select
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

from exporter.model.documents import MOST_EVENTS
from exporter.model.events import EVENT_TYPES
from tests.builders import body
from tests.end_to_end.program import eventually, exporter, get, metric, resident
from tests.end_to_end.vm import Vm, event, one_vm, stop
from tests.faults.documents import LARGEST, largest
from tests.receivers import http_receiver

# As the contract promises, beyond what an idle program takes.
MOST_MIB = 64
MOST_STATE_MIB = 16


def show(vm: Vm, document: bytes, number: int) -> None:
    """Make IMDS answer with a document, and wait until the program has processed it."""
    vm.imds.simulator.set_document(document)
    eventually(
        lambda: json.loads(get(f"{vm.url}/api/v1/status"))["document_incarnation"] == number, within=120
    )


def test_a_thousand_events(tmp_path: Path) -> None:
    """All are processed, scraped, shown, decided and told; nothing is left."""
    refused = threading.Event()

    def refuse(_: bytes) -> int:
        refused.set()
        return 500

    with http_receiver() as receiver, one_vm(tmp_path) as vm:
        receiver.mood = refuse
        vm.configure(
            metrics={"events": "all", "resources": True},
            notifications={"targets": [{"name": "t", "url": f"json://{receiver.authority}"}]},
            approval={"mode": "dry_run", "leader": "any", "rules": [{"name": "all", "action": "approve"}]},
        )
        with vm.running("--poll.interval", "1s") as process:
            idle = resident(process.pid)
            every = [
                event(f"{n:032x}", EventType=EVENT_TYPES[n % 5], Resources=[vm.name, "demo_1"])
                for n in range(MOST_EVENTS)
            ]
            show(vm, body(*every, incarnation=2), 2)
            assert refused.wait(60)
            receiver.mood = 200
            exposed = get(f"{vm.url}/metrics")
            assert exposed.count("\nazure_scheduled_events_event_info{") == MOST_EVENTS
            assert exposed.count("\nazure_scheduled_events_event_resource_info{") == 2 * MOST_EVENTS
            assert len(get(vm.url)) < 200_000
            assert len(json.loads(get(f"{vm.url}/api/v1/events"))["current"]) == MOST_EVENTS

            def is_done() -> bool:
                decided = metric(vm.url, "approvals_total", rule="all", outcome="dry_run")
                return (decided, metric(vm.url, "notifications_pending", target="t")) == (MOST_EVENTS, 0)

            eventually(is_done, within=200, every=1)
            told = b"".join(received.body for received in receiver.requests)
            # What takes too long to be answered is sent again.
            assert len(set(re.findall(rb"\b[0-9a-f]{32}\b", told))) == MOST_EVENTS
            show(vm, body(incarnation=3), 3)
            assert len(get(f"{vm.url}/metrics")) < 100_000
            assert resident(process.pid, "VmHWM") - idle < MOST_MIB
            stop(process)
        assert not vm.log("messages dropped")


def test_no_document_takes_the_memory(tmp_path: Path) -> None:
    """Documents as large as they may be, other ones at each poll, while neither targets nor hooks succeed."""
    with one_vm(tmp_path) as vm:
        targets = [{"name": name, "url": "json://127.0.0.1:1"} for name in ("a", "b")]
        vm.configure(
            {"name": "h", "command": ["/bin/false"]},
            metrics={"events": "all", "resources": True},
            notifications={"targets": targets},
            instance={"name": "WestNO_0"},
        )
        with vm.running("--poll.interval", "1s") as process:
            idle = resident(process.pid)
            # Each twice in a row; the siege shows each alone for longer.
            for number in range(2, 2 + 2 * len(LARGEST)):
                show(vm, largest(LARGEST[number // 2 - 1], number), number)
                get(f"{vm.url}/metrics")
                get(f"{vm.url}/api/v1/events")
            assert resident(process.pid, "VmHWM") - idle < MOST_MIB
            assert (tmp_path / "state" / "state.db").stat().st_size < MOST_STATE_MIB * 2**20
            stop(process)


def test_guesses_do_not_delay_the_stop(tmp_path: Path) -> None:
    """Neither a password that is being checked, which may take days, nor those that wait."""
    web, state = tmp_path / "web.yml", tmp_path / "state"
    web.write_text(f"basic_auth_users: {{dear: '$2b$31${'.' * 53}'}}")
    guess = f"Authorization: Basic {base64.b64encode(b'dear:x').decode()}"
    with one_vm(tmp_path) as vm, ExitStack() as stack:
        flags = ("--web.config.file", str(web))
        process = stack.enter_context(exporter(vm.imds.url, state, vm.port, *flags))
        address = ("127.0.0.1", vm.port)
        peers = eventually(
            lambda: [stack.enter_context(socket.create_connection(address, 60)) for _ in range(8)]
        )
        for peer in peers:
            peer.sendall(f"GET / HTTP/1.1\r\nHost: x\r\n{guess}\r\n\r\n".encode())
        # Half of them are refused at once.
        eventually(lambda: len(select.select(peers, [], [], 0)[0]) == 4)
        stop(process)
