"""Metrics as a receiver gets them."""

import json
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from exporter.otlp.metrics import MetricExporter, console_exporter, otlp_exporter
from exporter.otlp.worker import ExportOutcome
from tests.clocks import NOW, HandClock
from tests.notifications.receivers import Receiver
from tests.otlp.receiver import pushes, values

TRACE = "c7061bacafdc4513b24baa5f13a16123"
SECOND = 10**9
START = int(NOW.timestamp()) * SECOND


def registry() -> CollectorRegistry:
    found = CollectorRegistry()
    Counter("transitions", "T.", ["event_type"], registry=found).labels("Freeze").inc(
        2, exemplar={"trace_id": TRACE}
    )
    Counter("pause_seconds", "P.", registry=found)
    Gauge("event_seconds_to_not_before", "E.", registry=found).set(-1.5)
    Gauge("process_resident_memory_bytes", "M.", registry=found).set(5)
    notice = Histogram("notice_seconds", "N.", ["event_type"], buckets=(30, 300), registry=found)
    notice.labels("Freeze").observe(20)
    notice.labels("Freeze").observe(900, {"trace_id": TRACE})
    notice.labels("Reboot")
    Gauge("empty", "No series.", ["target"], registry=found)
    return found


def otlp() -> MetricExporter:
    clock = HandClock()
    exporter = otlp_exporter(dict, clock, clock.now())
    clock.pass_seconds(60)
    return exporter


def test_families_arrive_as_they_are(receiver: Receiver) -> None:
    """Counters lose their suffix, units follow from names; start times, buckets and trace ids come along."""
    assert otlp().export(registry().collect()).problem == ""
    (found,) = pushes(receiver)
    assert receiver.requests[0].path == "/v1/metrics"
    units = {name: metric.unit for name, metric in found.items()}
    assert units == {
        "transitions": "",
        "pause_seconds": "s",
        "event_seconds_to_not_before": "",
        "process_resident_memory_bytes": "By",
        "notice_seconds": "s",
    }
    counter = found["transitions"].sum
    (point,) = counter.data_points
    assert (counter.is_monotonic, counter.aggregation_temporality) == (
        True,
        AGGREGATION_TEMPORALITY_CUMULATIVE,
    )
    assert (point.as_double, values(point.attributes)) == (2, {"event_type": "Freeze"})
    assert (point.start_time_unix_nano, point.time_unix_nano) == (START, START + 60 * SECOND)
    assert [(one.trace_id.hex(), one.as_double) for one in point.exemplars] == [(TRACE, 2)]
    assert found["event_seconds_to_not_before"].gauge.data_points[0].as_double == -1.5
    histogram = found["notice_seconds"].histogram
    first, second = histogram.data_points
    assert histogram.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
    assert values(second.attributes) == {"event_type": "Reboot"}
    assert (list(first.explicit_bounds), list(first.bucket_counts)) == ([30, 300], [1, 0, 1])
    assert (first.count, first.sum, first.start_time_unix_nano) == (2, 920, START)
    assert [one.trace_id.hex() for one in first.exemplars] == [TRACE]
    assert not first.HasField("min")
    assert second.count == 0


def test_requests_are_bounded(receiver: Receiver) -> None:
    """Many series go in several requests, none of which has much more than 2,000."""
    found = CollectorRegistry()
    for number in range(5):
        gauge = Gauge(f"g{number}", "G.", ["n"], registry=found)
        for label in range(900):
            gauge.labels(str(label)).set(label)
    assert otlp().export(found.collect()) == ExportOutcome(4500)
    assert [list(one) for one in pushes(receiver)] == [["g0", "g1"], ["g2", "g3"], ["g4"]]


def test_values_that_are_rejected(receiver: Receiver) -> None:
    """They are a problem, although the answer is a success: they would be missing silently."""
    answer = ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points = 3
    answer.partial_success.error_message = "out of order"
    receiver.answer = answer.SerializeToString()
    assert otlp().export(registry().collect()).problem == "the receiver rejects 3 values: out of order"
    receiver.mood = 400
    assert otlp().export(registry().collect()).problem == "the receiver answered with status 400"


def test_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    """Metrics are printed as JSON."""
    assert console_exporter(dict, HandClock(), NOW).export(registry().collect()).problem == ""
    printed: Any = json.loads(capsys.readouterr().out)
    assert printed["resource_metrics"][0]["scope_metrics"][0]["metrics"][0]["name"] == "transitions"
