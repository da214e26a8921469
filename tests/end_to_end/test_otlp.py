"""Spans, metrics and log records over OTLP from the whole program, decoded by a receiver."""

from tests.end_to_end.program import eventually, metric
from tests.end_to_end.vm import Vm, event, stop
from tests.outputs.otlp.receiver import log_records, pushes, values
from tests.receivers import Receiver, http_receiver

PREFIX = "azure.scheduled_event."


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
