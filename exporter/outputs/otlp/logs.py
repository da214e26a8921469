"""Export of log records with OpenTelemetry's SDK; loaded only where they are on.

The modules for logs are documented under names with an underscore, because their interface may still change
(https://opentelemetry-python.readthedocs.io/en/latest/api/_logs.html). `make test-lowest` tests the lowest
supported version.
"""

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
from exporter.outputs.otlp.export import SCHEMA_URL, Attributes, Sdk, SdkExporter, nanoseconds, resource
from exporter.outputs.otlp.telemetry import LogRecord, Signal

_SDK = Sdk(
    Signal.LOGS, OTLPLogExporter, ConsoleLogRecordExporter, ExportLogsServiceResponse, "rejected_log_records"
)
# OpenTelemetry's page "Logs Data Model" ("Severity Fields"): nothing here ends the program, which is FATAL.
_SEVERITIES = {"warning": SeverityNumber.WARN, "critical": SeverityNumber.ERROR}
_SCOPE = InstrumentationScope(PROGRAM, __version__, SCHEMA_URL)


def exporter(attributes: Attributes, *, console: bool) -> SdkExporter:
    def prepare(records: Sequence[LogRecord]) -> list[ReadableLogRecord]:
        about = resource(attributes())
        return [ReadableLogRecord(_record(record), about, _SCOPE) for record in records]

    return SdkExporter(_SDK, prepare, console=console)


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
