"""Log records as a receiver gets them."""

import json

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from exporter.model.jobs import LogRecord
from exporter.otlp.logs import LogRecordExporter, console_exporter, otlp_exporter
from exporter.otlp.worker import ExportOutcome
from tests.clocks import NOW
from tests.notifications.receivers import Receiver
from tests.otlp.receiver import ArrivedRecord, log_records

RECORD = LogRecord(
    name="azure.scheduled_event.started",
    end=NOW.replace(microsecond=123456),
    severity="critical",
    body="Reboot started: WestNO_0",
    attributes={"azure.scheduled_event.resources": ("a", "b"), "azure.scheduled_event.duration_seconds": 5},
    uid="3d1f0d0e-6a3c-5f0b-8f9b-0a6f1b1f6f0b",
    trace_id="c7061bacafdc4513b24baa5f13a16123",
    span_id="00f067aa0ba902b7",
    sampled=True,
)


def otlp() -> LogRecordExporter:
    return otlp_exporter(lambda: {"host.name": "web_3"})


def test_a_record_arrives_as_it_is(receiver: Receiver) -> None:
    """Name, time, severity, body, attributes and ids are those that were given; the uid is an attribute."""
    other = LogRecord("azure.scheduled_event.degraded", NOW, "warning", "degraded: x", {}, "uid")
    assert otlp().export([RECORD, other]) == ExportOutcome(2)
    arrived, plain = log_records(receiver)
    assert receiver.requests[0].path == "/v1/logs"
    assert arrived == ArrivedRecord(
        name="azure.scheduled_event.started",
        at=RECORD.end,
        severity=17,
        severity_text="critical",
        body="Reboot started: WestNO_0",
        attributes={
            "azure.scheduled_event.resources": ["a", "b"],
            "azure.scheduled_event.duration_seconds": 5,
            "log.record.uid": RECORD.uid,
        },
        resource=arrived.resource,
        trace_id=RECORD.trace_id,
        span_id=RECORD.span_id,
        flags=1,
    )
    assert arrived.resource["host.name"] == "web_3"
    assert (plain.severity, plain.trace_id, plain.span_id, plain.flags) == (13, "", "", 0)


def test_partial_success(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """Rejected records do not count as accepted, and the receiver's message is logged."""
    answer = ExportLogsServiceResponse()
    answer.partial_success.rejected_log_records = 1
    answer.partial_success.error_message = "too old"
    receiver.answer = answer.SerializeToString()
    assert otlp().export([RECORD, RECORD]) == ExportOutcome(1)
    assert "log records rejected by the receiver" in caplog.text


def test_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    """Records are printed as JSON."""
    assert console_exporter(dict).export([RECORD]) == ExportOutcome(1)
    assert json.loads(capsys.readouterr().out)["body"] == RECORD.body
