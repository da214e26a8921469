"""Metrics and log records over OTLP from the whole program, decoded by a receiver."""

from tests.end_to_end.hooking import Bench, event, stop
from tests.end_to_end.program import eventually, metric
from tests.notifications.receivers import Receiver, http_receiver
from tests.otlp.receiver import log_records, pushes, values

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


def test_what_a_receiver_gets(setting: Bench) -> None:
    """All signals arrive within seconds of a transition, compressed; a last push comes with the stop."""
    with http_receiver() as receiver:
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{receiver.authority}",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        }
        with setting.running(**environ) as process:
            setting.tell(event())
            eventually(lambda: transitions(receiver) == 1)
            setting.tell()
            eventually(lambda: names(receiver) == ["scheduled", "cancelled"])
            eventually(lambda: metric(setting.url, "log_records_total", outcome="exported") == 2)
            before = len(pushes(receiver))
            stop(process)
        assert len(pushes(receiver)) > before
    assert {request.headers["content-encoding"] for request in receiver.requests} == {"gzip"}
    assert {request.path for request in receiver.requests} == {"/v1/traces", "/v1/metrics", "/v1/logs"}


def test_records_outlive_a_kill(setting: Bench) -> None:
    """A record that was not accepted before a SIGKILL is sent after it, and no other twice."""
    with http_receiver(503) as receiver:
        environ = {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": f"http://{receiver.authority}/v1/logs"}
        with setting.running(**environ):
            setting.tell(event())
            eventually(lambda: metric(setting.url, "degraded", reason="otlp_failing") == 1)
        receiver.mood = 200
        with setting.running(**environ):
            eventually(lambda: "scheduled" in names(receiver))
            setting.tell(event(status="Started"))
            eventually(lambda: "started" in names(receiver))
    uids = [record.attributes["log.record.uid"] for record in log_records(receiver)]
    assert len(set(uids)) == len(uids)
