import signal
from pathlib import Path

from exporter.simulator import Simulator, SimulatorServer
from tests.builders import raw_event
from tests.end_to_end.program import eventually, exporter, free_port, metric
from tests.notifications.receivers import Receiver, http_receiver
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
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{receiver.authority}"} | more


def seen(port: int, incarnation: int) -> bool:
    return metric(f"http://127.0.0.1:{port}", "document_incarnation") == incarnation


def exported(port: int) -> float:
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


def test_a_receiver_that_drips_holds_up_nothing(tmp_path: Path) -> None:
    """Polling, messages and stopping continue while no span is accepted; all arrive once it recovers."""
    simulator = Simulator(vm_name="vm_0", requests_per_second=0)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with SimulatorServer(simulator) as imds, http_receiver("drip") as receiver, http_receiver() as chat:
        environ = environment(receiver, OTEL_EXPORTER_OTLP_TIMEOUT="1")
        flags = (*QUICK, "--notify", f"json://{chat.authority}/")
        with exporter(imds.url, tmp_path / "a", port, *flags, environ=environ) as process:
            simulator.set_document(document(1, "Scheduled"))
            eventually(lambda: len(chat.requests) == 1)
            simulator.set_document(document(2, "Started"))
            eventually(lambda: len(chat.requests) == 2)
            simulator.set_document(document(3))
            eventually(lambda: len(chat.requests) == 3)
            assert spans(receiver) == []
            receiver.mood = 200
            eventually(lambda: exported(port) == 6)
            eventually(lambda: metric(url, "degraded", reason="tracing_failing") == 0)
            assert len({span.span_id for span in spans(receiver)}) == 6
            receiver.mood = "drip"
            simulator.set_document(document(4, "Scheduled", EventId="another"))
            eventually(lambda: len(chat.requests) == 4)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
