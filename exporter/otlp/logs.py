"""Export of log records with OpenTelemetry's SDK; loaded only where they are on.

The modules for logs are documented under names with an underscore, because their interface may still change
(https://opentelemetry-python.readthedocs.io/en/latest/api/_logs.html). `make test-lowest` tests the lowest
supported version.
"""

import sys
from collections.abc import Sequence

from opentelemetry._logs import LogRecord as SdkRecord
from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import ConsoleLogRecordExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from opentelemetry.trace.propagation import set_span_in_context

from exporter import __version__
from exporter.config import PROGRAM
from exporter.model.jobs import LogRecord, Signal
from exporter.otlp.export import (
    SCHEMA_URL,
    Attributes,
    SdkExport,
    nanoseconds,
    note_rejection,
    over_http,
    resource,
)
from exporter.otlp.worker import ExportOutcome

_RESPONSE, _REJECTED = ExportLogsServiceResponse, "rejected_log_records"
# OpenTelemetry's page "Logs Data Model" ("Severity Fields"): nothing here ends the program, which is FATAL.
_SEVERITIES = {"warning": SeverityNumber.WARN, "critical": SeverityNumber.ERROR}
_SCOPE = InstrumentationScope(PROGRAM, __version__, SCHEMA_URL)


class LogRecordExporter:
    """Exports log records; used by one thread."""

    def __init__(self, sdk_export: SdkExport, attributes: Attributes) -> None:
        self._export = sdk_export
        self._attributes = attributes

    def export(self, records: Sequence[LogRecord]) -> ExportOutcome:
        outcome = self._export.export(lambda: self._prepared(records), len(records))
        if not outcome.problem:
            note_rejection(self._export.rejection, "log records")
        return outcome

    def shutdown(self) -> None:
        self._export.shutdown()

    def _prepared(self, records: Sequence[LogRecord]) -> list[ReadableLogRecord]:
        about = resource(self._attributes())
        return [ReadableLogRecord(_record(one), about, _SCOPE) for one in records]


def otlp_exporter(attributes: Attributes) -> LogRecordExporter:
    """Return an exporter for OTLP over HTTP."""
    made = over_http(Signal.LOGS, OTLPLogExporter, response=_RESPONSE, rejected=_REJECTED)
    return LogRecordExporter(made, attributes)


def console_exporter(attributes: Attributes) -> LogRecordExporter:
    """Return an exporter that prints to standard output, for ``OTEL_LOGS_EXPORTER=console``."""
    console = ConsoleLogRecordExporter(out=sys.stdout)
    return LogRecordExporter(SdkExport(console, response=_RESPONSE, rejected=_REJECTED), attributes)


def _record(record: LogRecord) -> SdkRecord:
    at = nanoseconds(record.end)
    return SdkRecord(
        timestamp=at,
        observed_timestamp=at,
        context=_context(record),
        severity_text=record.severity,
        severity_number=_SEVERITIES.get(record.severity, SeverityNumber.INFO),
        body=record.body,
        attributes={**record.attributes, "log.record.uid": record.uid},
        event_name=record.name,
    )


def _context(record: LogRecord) -> Context:
    # An empty context would be replaced by the current one.
    flags = TraceFlags(TraceFlags.SAMPLED if record.sampled else TraceFlags.DEFAULT)
    trace_id, span_id = int(record.trace_id or "0", 16), int(record.span_id or "0", 16)
    root = SpanContext(trace_id, span_id, is_remote=False, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(root), Context())
