"""Spans, metrics and log records over OTLP from the whole program, decoded by a receiver."""

from pathlib import Path
from typing import Any

from exporter.simulator import Simulator, SimulatorServer
from tests.end_to_end.program import eventually, metric
from tests.end_to_end.vm import EVENT, Vm, event, stop
from tests.notifications.receivers import Receiver, http_receiver
from tests.otlp.receiver import log_records, pushes, spans, spans_with_hosts, values

PREFIX = "azure.scheduled_event."
TRACE = EVENT.replace("-", "").lower()
VMS = ("vm_0", "vm_1")


def names(receiver: Receiver) -> list[str]:
    return [record.name.removeprefix(PREFIX) for record in log_records(receiver)]


def transitions(receiver: Receiver) -> float:
    """Return how often an event was scheduled, by the newest push."""
    found = pushes(receiver)
    counts: list[float] = [
        point.as_double
        for point in (found[-1]["azure_scheduled_events_transitions"].sum.data_points if found else ())
        if values(point.attributes)["transition"] == "scheduled"
    ]
    return sum(counts)


def test_what_a_receiver_gets(vm: Vm) -> None:
    """All signals arrive within seconds of a transition, compressed; a last push comes with the stop."""
    with http_receiver() as receiver:
        environ = environment(receiver, OTEL_EXPORTER_OTLP_COMPRESSION="gzip")
        with vm.running(**environ) as process:
            vm.tell(event())
            eventually(lambda: transitions(receiver) == 1)
            vm.tell()
            eventually(lambda: names(receiver) == ["scheduled", "cancelled"])
            eventually(lambda: metric(vm.url, "log_records_total", outcome="exported") == 2)
            before = len(pushes(receiver))
            stop(process)
        assert len(pushes(receiver)) > before
    assert {request.headers["content-encoding"] for request in receiver.requests} == {"gzip"}
    assert {request.path for request in receiver.requests} == {"/v1/traces", "/v1/metrics", "/v1/logs"}


def environment(receiver: Receiver, **more: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{receiver.authority}"} | more


def seen(vm: Vm) -> float:
    return metric(vm.url, "document_incarnation")


def exported(vm: Vm) -> float:
    return metric(vm.url, "spans_total", outcome="exported")


def test_one_trace_across_vms_and_restarts(tmp_path: Path) -> None:
    """Two VMs see one event, one exporter is killed in its midst: one trace, two roots, nothing twice."""
    group = Simulator(vm_name=VMS[0], instances=len(VMS), requests_per_second=0)
    with SimulatorServer(group) as imds, http_receiver() as receiver, http_receiver() as chat:
        environ = environment(receiver, OTEL_EXPORTER_OTLP_COMPRESSION="gzip")
        first, second = (Vm(tmp_path / vm, imds, name=vm) for vm in VMS)
        flags, reboot = ("--notify", f"json://{chat.authority}/"), event(Resources=VMS)
        longer = reboot | {"DurationInSeconds": 9}
        for vm in (first, second):
            vm.configure()

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
    for name in VMS:
        every = [span for host, span in spans_with_hosts(receiver) if host == name]
        mine = {span.name: span for span in every if span.name != "notify notify-1"}
        assert len(mine) == 3
        root, announced, began = (mine[n] for n in ("scheduled_event Reboot", "scheduled", "started"))
        assert {span.parent_id for span in every} == {"", root.span_id}
        assert root.start == announced.start < announced.end == began.start < began.end == root.end
        (update,) = root.events
        assert (update.name, update.attributes[f"{PREFIX}duration_seconds.new"]) == ("updated", 9)
        facts = {name: root.attributes[PREFIX + name] for name in ("outcome", "not_before")}
        assert facts == {"outcome": "completed", "not_before": "2026-03-04T22:15:00Z"}
    assert {span.name for span in found if span.kind == "client"} == {"notify notify-1"}


def test_a_receiver_that_drips_holds_up_nothing(vm: Vm) -> None:
    """Polling, messages and stopping continue while no span is accepted; all arrive once it recovers."""
    with http_receiver("drip") as receiver, http_receiver() as chat:
        environ = environment(receiver, OTEL_EXPORTER_OTLP_TIMEOUT="1")
        with vm.running("--notify", f"json://{chat.authority}/", **environ) as process:
            for number, listed in enumerate(([event()], [event(status="Started")], []), 1):
                vm.tell(*listed)
                eventually(lambda: len(chat.requests) == number)  # noqa: B023  # called at once
            assert spans(receiver) == []
            receiver.mood = 200
            eventually(lambda: exported(vm) == 6)
            eventually(lambda: metric(vm.url, "degraded", reason="tracing_failing") == 0)
            assert len({span.span_id for span in spans(receiver)}) == 6
            receiver.mood = "drip"
            vm.tell(event("another"))
            eventually(lambda: len(chat.requests) == 4)
            stop(process)
