from pathlib import Path
from typing import Any

from exporter.simulator import Simulator, SimulatorServer
from tests.end_to_end.hooking import EVENT, Bench, event, stop
from tests.end_to_end.program import eventually, metric
from tests.notifications.receivers import Receiver, http_receiver
from tests.otlp.receiver import Arrived, spans

TRACE = EVENT.replace("-", "").lower()
VMS = ("vm_0", "vm_1")


def environment(receiver: Receiver, **more: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{receiver.authority}"} | more


def seen(vm: Bench) -> float:
    return metric(vm.url, "document_incarnation")


def exported(vm: Bench) -> float:
    return metric(vm.url, "spans_total", outcome="exported")


def of(found: list[Arrived], vm: str) -> dict[str, Arrived]:
    """Return one VM's spans by name, of which none may come twice."""
    mine = [span for span in found if span.resource["host.name"] == vm]
    assert len({span.name for span in mine}) == len(mine)
    return {span.name: span for span in mine}


def test_one_trace_across_vms_and_restarts(tmp_path: Path) -> None:
    """Two VMs see one event, one exporter is killed in its midst: one trace, two roots, nothing twice."""
    group = Simulator(vm_name=VMS[0], instances=len(VMS), requests_per_second=0)
    with SimulatorServer(group) as imds, http_receiver() as receiver, http_receiver() as chat:
        environ = environment(receiver, OTEL_EXPORTER_OTLP_COMPRESSION="gzip")
        first, second = (Bench(tmp_path / vm, imds, vm=vm) for vm in VMS)
        flags, reboot = ("--notify", f"json://{chat.authority}/"), event(Resources=VMS)
        longer = reboot | {"DurationInSeconds": 9}
        for bench in (first, second):
            bench.configure()

        def tell(*events: dict[str, Any]) -> None:
            first.tell(*events)
            eventually(lambda: seen(second) == seen(first))

        with second.running(*flags, **environ):
            with first.running(*flags, **environ):
                tell(reboot)
                tell(longer)
                # A span that is not counted yet is sent again after a kill.
                eventually(lambda: exported(first) == exported(second) == 2)
            with first.running(*flags, **environ):
                tell(longer | {"EventStatus": "Started", "NotBefore": ""})
                tell()
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


def test_a_receiver_that_drips_holds_up_nothing(setting: Bench) -> None:
    """Polling, messages and stopping continue while no span is accepted; all arrive once it recovers."""
    with http_receiver("drip") as receiver, http_receiver() as chat:
        environ = environment(receiver, OTEL_EXPORTER_OTLP_TIMEOUT="1")
        with setting.running("--notify", f"json://{chat.authority}/", **environ) as process:
            for number, listed in enumerate(([event()], [event(status="Started")], []), 1):
                setting.tell(*listed)
                eventually(lambda: len(chat.requests) == number)  # noqa: B023  # called at once
            assert spans(receiver) == []
            receiver.mood = 200
            eventually(lambda: exported(setting) == 6)
            eventually(lambda: metric(setting.url, "degraded", reason="tracing_failing") == 0)
            assert len({span.span_id for span in spans(receiver)}) == 6
            receiver.mood = "drip"
            setting.tell(event("another"))
            eventually(lambda: len(chat.requests) == 4)
            stop(process)
