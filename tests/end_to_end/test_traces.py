"""Traces of the running program, as receivers get them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.clock import SystemClock
from exporter.imds import ImdsClient
from exporter.simulator import Simulator, SimulatorServer
from tests.builders import raw_event
from tests.end_to_end.program import eventually, exporter, free_port, get
from tests.end_to_end.test_notifications import configuration, metric, reload
from tests.notifications.receivers import Receiver, http_receiver
from tests.state_support import on_disk
from tests.tracing.receiver import Arrived, spans

EVENT = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"
TRACE = EVENT.replace("-", "").lower()
VMS = ("vm_0", "vm_1")
QUICK = ("--poll.interval", "200ms")


def document(number: int, status: str | None = None, **fields: object) -> dict[str, object]:
    """Return a document with a reboot of both VMs in a status; empty without one."""
    usual = {"EventId": EVENT, "EventType": "Reboot", "EventStatus": status, "Resources": list(VMS)}
    event = raw_event(**(usual | fields))
    return {"DocumentIncarnation": number, "Events": [] if status is None else [event]}


def environment(receiver: Receiver, **more: str) -> dict[str, str]:
    """Return the standard variables that name a receiver."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{receiver.authority}"} | more


def seen(port: int, incarnation: int) -> bool:
    """Return whether an exporter has read a document."""
    return metric(f"http://127.0.0.1:{port}", "document_incarnation") == incarnation


def exported(port: int) -> float:
    """Return the number of spans that an exporter counts as accepted."""
    return metric(f"http://127.0.0.1:{port}", "spans_total", outcome="exported")


def of(found: list[Arrived], vm: str) -> dict[str, Arrived]:
    """Return one VM's spans by name, of which none may come twice."""
    mine = [span for span in found if span.resource["host.name"] == vm]
    assert len({span.name for span in mine}) == len(mine)
    return {span.name: span for span in mine}


def test_one_trace_across_vms_and_restarts(tmp_path: Path) -> None:
    """Two VMs see one event, one exporter is killed in its midst: one trace, two roots, nothing twice."""
    simulator = Simulator(vm_name="other", requests_per_second=0)
    first, second = free_port(), free_port()
    with SimulatorServer(simulator) as imds, http_receiver() as receiver, http_receiver() as chat:
        environ = environment(receiver, OTEL_EXPORTER_OTLP_COMPRESSION="gzip")
        flags = [(*QUICK, "--instance.name", vm, "--notify", f"json://{chat.authority}/") for vm in VMS]
        with exporter(imds.url, tmp_path / "1", second, *flags[1], environ=environ):
            with exporter(imds.url, tmp_path / "0", first, *flags[0], environ=environ):
                simulator.set_document(document(1, "Scheduled"))
                eventually(lambda: seen(first, 1) and seen(second, 1))
                simulator.set_document(document(2, "Scheduled", DurationInSeconds=9))
                eventually(lambda: seen(first, 2) and seen(second, 2))
                # A span that is not counted yet is sent again after a kill.
                eventually(lambda: exported(first) == exported(second) == 2)
            with exporter(imds.url, tmp_path / "0", first, *flags[0], environ=environ):
                eventually(lambda: seen(first, 2))
                simulator.set_document(document(3, "Started", DurationInSeconds=9, NotBefore=""))
                eventually(lambda: seen(first, 3) and seen(second, 3))
                simulator.set_document(document(4))
                eventually(lambda: len([s for s in spans(receiver) if not s.parent_id]) == 2)
                eventually(lambda: len(spans(receiver)) == 14)
    found = spans(receiver)
    assert {span.trace_id for span in found} == {TRACE}
    assert len({span.span_id for span in found}) == 14
    sent = {request.headers["traceparent"] for request in chat.requests}
    assert sent == {f"00-{TRACE}-{s.span_id}-01" for s in found if s.name == "notify notify-1"}
    for vm in VMS:
        mine = of([span for span in found if span.name != "notify notify-1"], vm)
        root, announced, began = (mine[n] for n in ("scheduled_event Reboot", "scheduled", "started"))
        assert {s.parent_id for s in found if s.resource["host.name"] == vm} == {"", root.span_id}
        assert root.start == announced.start < announced.end == began.start < began.end == root.end
        ((name, _, attributes),) = root.events
        assert name == "updated"
        assert attributes["azure.scheduled_event.duration_seconds.new"] == 9
        assert root.fact("outcome") == "completed"
        assert root.fact("not_before") == "2026-03-04T22:15:00Z"
        assert root.resource["service.name"] == "azure-scheduled-events-exporter"
    assert {span.name for span in found if span.kind == "client"} == {"notify notify-1"}


def test_facts_about_the_vm(tmp_path: Path) -> None:
    """The resource of spans has the facts from IMDS, including the name."""
    simulator = Simulator(vm_name="vm_0", requests_per_second=0)
    port = free_port()
    with SimulatorServer(simulator) as imds, http_receiver() as receiver:
        with exporter(imds.url, tmp_path, port, *QUICK, environ=environment(receiver)):
            simulator.set_document(document(1, "Started"))
            eventually(lambda: seen(port, 1))
            simulator.set_document(document(2))
            root = eventually(lambda: [s for s in spans(receiver) if not s.parent_id])[0]
        facts = ImdsClient(imds.url, clock=SystemClock()).instance()
    assert root.resource["host.name"] == "vm_0"
    assert root.resource["host.id"] == facts.vm_id
    assert root.resource["cloud.region"] == facts.location


@pytest.mark.parametrize("mood", [503, 403, "hang", "drip"])
def test_a_receiver_in_any_mood_holds_up_nothing(tmp_path: Path, mood: int | str) -> None:
    """Polling, notifying and stopping go on while no span is taken; all arrive when it is well again."""
    simulator = Simulator(vm_name="vm_0", requests_per_second=0)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with SimulatorServer(simulator) as imds, http_receiver(mood) as receiver, http_receiver() as chat:
        environ = environment(receiver, OTEL_EXPORTER_OTLP_TIMEOUT="1")
        flags = (*QUICK, "--notify", f"json://{chat.authority}/")
        with exporter(imds.url, tmp_path / "a", port, *flags, environ=environ) as process:
            simulator.set_document(document(1, "Scheduled"))
            eventually(lambda: len(chat.requests) == 1)
            if mood != "drip":
                # As long as bytes come now and then, the export has not failed.
                eventually(lambda: metric(url, "degraded", reason="tracing_failing") == 1)
            simulator.set_document(document(2, "Started"))
            eventually(lambda: len(chat.requests) == 2)
            simulator.set_document(document(3))
            eventually(lambda: len(chat.requests) == 3)
            assert spans(receiver) == []
            receiver.mood = 200
            receiver.released.set()
            eventually(lambda: exported(port) == 6)
            eventually(lambda: metric(url, "degraded", reason="tracing_failing") == 0)
            assert len({span.span_id for span in spans(receiver)}) == 6
            receiver.mood, receiver.released = mood, type(receiver.released)()
            simulator.set_document(document(4, "Scheduled", EventId="another"))
            eventually(lambda: len(chat.requests) == 4)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def test_a_receiver_that_comes_late(tmp_path: Path) -> None:
    """While the receiver is down spans are queued; they arrive once it is up."""
    simulator = Simulator(vm_name="vm_0", requests_per_second=0)
    port, receiver_port = free_port(), free_port()
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver_port}",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
    }
    log = tmp_path / "log"
    with (
        SimulatorServer(simulator) as imds,
        exporter(imds.url, tmp_path / "a", port, *QUICK, environ=environ, log=log),
    ):
        simulator.set_document(document(1, "Started"))
        eventually(lambda: seen(port, 1))
        simulator.set_document(document(2))
        eventually(lambda: "Connection refused" in log.read_text())
        with http_receiver(port=receiver_port) as receiver:
            eventually(lambda: len({span.span_id for span in spans(receiver)}) == 2)
    assert f"traces to http://127.0.0.1:{receiver_port}: Connection refused" in log.read_text()


def test_spans_outlive_a_kill(tmp_path: Path) -> None:
    """What no receiver took is sent after the next start with the same ids, and nothing of it twice."""
    simulator = Simulator(vm_name="vm_0", requests_per_second=0)
    port = free_port()
    state = tmp_path / "a"
    with SimulatorServer(simulator) as imds, http_receiver(503) as receiver, http_receiver() as chat:
        file = tmp_path / "exporter.yml"
        file.write_text(json.dumps({"hooks": [{"name": "drain", "command": ["false"]}]}))
        flags = (*QUICK, "--notify", f"json://{chat.authority}/", "--config.file", str(file))
        environ = environment(receiver, OTEL_EXPORTER_OTLP_TIMEOUT="1")
        with exporter(imds.url, state, port, *flags, environ=environ) as process:
            for number, status in enumerate(("Scheduled", "Started", None), start=1):
                simulator.set_document(document(number, status))
                # Of each transition and of the hook that failed for it.
                eventually(lambda: len(chat.requests) == 2 * number)  # noqa: B023  # called at once
            eventually(lambda: len(on_disk(state, "span")) == 12)
            process.kill()
            process.wait()
        receiver.mood = 200
        for _ in range(2):
            # What a receiver takes too long to answer is sent again.
            with exporter(imds.url, state, port, *flags, environ=environment(receiver)):
                eventually(lambda: seen(port, 3) and on_disk(state, "span") == {})
    found = spans(receiver)
    assert len({span.span_id for span in found}) == len(found) == 12
    (root,) = (span for span in found if not span.parent_id)
    assert {span.parent_id for span in found} == {"", root.span_id}
    assert {request.headers["traceparent"] for request in chat.requests} == {
        f"00-{TRACE}-{span.span_id}-01" for span in found if span.name == "notify notify-1"
    }
    assert root.resource["host.name"] == "vm_0"
    assert "cloud.region" in root.resource


def test_spans_survive_a_clean_stop(tmp_path: Path) -> None:
    """A stop right after an event's end sends what there is to send."""
    simulator = Simulator(vm_name="vm_0", requests_per_second=0)
    port = free_port()
    with SimulatorServer(simulator) as imds, http_receiver(503) as receiver:
        environ = environment(receiver)
        with exporter(imds.url, tmp_path / "a", port, *QUICK, environ=environ) as process:
            simulator.set_document(document(1, "Started"))
            eventually(lambda: seen(port, 1))
            simulator.set_document(document(2))
            eventually(lambda: seen(port, 2))
            receiver.mood = 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
    assert [span.name for span in spans(receiver)] == ["started", "scheduled_event Reboot"]


def test_events_of_others_are_traced_where_asked_for(tmp_path: Path) -> None:
    """Spans are made of this VM's events, and with ``metrics.events: all`` of all."""
    simulator = Simulator(vm_name="elsewhere", requests_per_second=0)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with SimulatorServer(simulator) as imds, http_receiver() as receiver, http_receiver() as chat:
        file = configuration(tmp_path, chat=chat)
        settings = json.loads(file.read_text())
        settings["notifications"]["routes"] = [{"match": {"target": "any"}, "targets": ["chat"]}]
        file.write_text(json.dumps(settings))
        flags = (*QUICK, "--config.file", str(file))
        with exporter(imds.url, tmp_path / "a", port, *flags, environ=environment(receiver)) as process:
            simulator.set_document(document(1, "Started"))
            eventually(lambda: len(chat.requests) == 1)
            simulator.set_document(document(2))
            eventually(lambda: len(chat.requests) == 2)
            file.write_text(json.dumps(settings | {"metrics": {"events": "all"}}))
            reload(process, url)
            simulator.set_document(document(3, "Started", EventId="another"))
            eventually(lambda: spans(receiver))
            simulator.set_document(document(4))
            eventually(lambda: len(spans(receiver)) == 4)
    assert {span.fact("id") for span in spans(receiver)} == {"another"}
    assert "traceparent" not in chat.requests[0].headers


@pytest.mark.parametrize(
    ("variables", "imported"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, True),
    ],
)
def test_the_sdk_is_imported_where_it_is_used(
    tmp_path: Path, variables: dict[str, str], *, imported: bool
) -> None:
    """With nothing set there is no SDK, no thread, no word."""
    program = (
        "import os, pathlib, sys, threading, time\n"
        "from prometheus_client import CollectorRegistry\n"
        "from exporter.clock import SystemClock\n"
        "from exporter.config import Config\n"
        "from exporter.health import Health\n"
        "from exporter.metrics import Metrics\n"
        "from exporter.state import Store\n"
        "from exporter.tracing import Tracer\n"
        "clock = SystemClock()\n"
        "health = Health(clock)\n"
        "store = Store.open(pathlib.Path(os.environ['STATE']), health=health, clock=clock)\n"
        "metrics = Metrics(CollectorRegistry())\n"
        "tracer = Tracer(store.spans, metrics, health, clock, vm=lambda: None, environ=os.environ)\n"
        "tracer.configure(Config())\n"
        "deadline = time.monotonic() + 20\n"
        "while os.environ['WAIT'] and 'opentelemetry.sdk.trace' not in sys.modules:\n"
        "    assert time.monotonic() < deadline\n"
        "print('opentelemetry' in sys.modules, threading.active_count())\n"
        "sys.stdout.flush()\n"
        "os._exit(0)\n"
    )
    clean = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=clean | variables | {"WAIT": "1" if imported else "", "STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.split() == (["True", "2"] if imported else ["False", "1"])
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318"},
            "no traces are sent: OTEL_EXPORTER_OTLP",
        ),
        ({"OTEL_TRACES_EXPORTER": "jaeger"}, "no traces are sent: OTEL_TRACES_EXPORTER: 'jaeger'"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "x"},
            "traces to http://127.0.0.1:1: cannot be set up: OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
        ),
    ],
)
def test_a_variable_that_is_wrong(tmp_path: Path, variables: dict[str, str], problem: str) -> None:
    """The watch continues, and the status names the invalid variable."""
    port = free_port()
    with (
        SimulatorServer(Simulator(requests_per_second=0)) as imds,
        exporter(imds.url, tmp_path, port, *QUICK, environ=variables),
    ):
        eventually(lambda: get(f"http://127.0.0.1:{port}/-/ready"))
        eventually(lambda: problem in get(f"http://127.0.0.1:{port}/api/v1/status"))
