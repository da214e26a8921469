"""Export of metrics with OpenTelemetry's SDK; loaded only where they are on.

The families of the page of metrics are the source. Source of names, units and exemplars: OpenTelemetry's page
"Prometheus and OpenMetrics Compatibility"; receivers append ``_total`` to counters, and the unit where the
name does not have it.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    ConsoleMetricExporter,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric as Family
from prometheus_client.samples import Sample

from exporter import __version__
from exporter.clock import Clock
from exporter.config import PROGRAM
from exporter.outputs.otlp.export import SCHEMA_URL, Attributes, Sdk, SdkExporter, nanoseconds, resource
from exporter.outputs.otlp.telemetry import Signal
from exporter.outputs.otlp.worker import ExportOutcome

_SDK = Sdk(
    Signal.METRICS,
    OTLPMetricExporter,
    ConsoleMetricExporter,
    ExportMetricsServiceResponse,
    "rejected_data_points",
)
_SCOPE = InstrumentationScope(PROGRAM, __version__, SCHEMA_URL)
_MOST_POINTS = 2000  # of a request; a point takes some 300 bytes there, and several times as much in memory
_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1"}  # as in UCUM, by the last word of a name


class MetricExporter:
    """Exports metrics, which count from ``start`` on, in requests of bounded size; used by one thread."""

    def __init__(self, attributes: Attributes, clock: Clock, start: datetime, *, console: bool) -> None:
        self._attributes = attributes
        self._clock = clock
        self._start = nanoseconds(start)
        self._exporter = SdkExporter(_SDK, self._request, console=console)

    def export(self, families: Iterable[Family]) -> ExportOutcome:
        """Export all samples. What a receiver rejects in a successful answer is a problem, too."""
        for batch in _batches(_points(families, self._start, nanoseconds(self._clock.now()))):
            outcome = self._exporter.export(batch)
            if outcome.problem:
                return outcome
            if outcome.rejected:
                reason = outcome.reason or "without a reason"
                return ExportOutcome(problem=f"the receiver rejects {outcome.rejected} values: {reason}")
        return ExportOutcome()

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def _request(self, batch: Sequence[Metric]) -> MetricsData:
        scope = ScopeMetrics(_SCOPE, batch, SCHEMA_URL)
        return MetricsData([ResourceMetrics(resource(self._attributes()), [scope], SCHEMA_URL)])


def _points(families: Iterable[Family], start: int, now: int) -> Iterator[Metric]:
    """Yield metrics of OpenTelemetry's data model; times are in nanoseconds."""
    for family in families:
        if not family.samples:
            continue
        data: Sum | Gauge | Histogram
        if family.type == "counter":
            numbers = [
                _number(sample, start, now) for sample in family.samples if sample.name.endswith("_total")
            ]
            data = Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        elif family.type == "histogram":
            points = list(_histograms(family.samples, start, now))
            data = Histogram(points, AggregationTemporality.CUMULATIVE)
        else:
            data = Gauge([_number(sample, start, now) for sample in family.samples])
        unit = _UNITS.get(family.name.rpartition("_")[2], "")
        yield Metric(family.name, family.documentation, unit, data)


def _batches(metrics: Iterable[Metric]) -> Iterator[list[Metric]]:
    batch: list[Metric] = []
    size = 0
    for metric in metrics:
        count = len(metric.data.data_points)
        if batch and size + count > _MOST_POINTS:
            yield batch
            batch, size = [], 0
        batch.append(metric)
        size += count
    if batch:
        yield batch


def _number(sample: Sample, start: int, now: int) -> NumberDataPoint:
    return NumberDataPoint(sample.labels, start, now, float(sample.value), _exemplars([sample]))


def _histograms(samples: Iterable[Sample], start: int, now: int) -> Iterator[HistogramDataPoint]:
    """Yield a point for each set of labels, from its buckets, its count and its sum."""
    series: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        series.setdefault(labels, []).append(sample)
    for labels, own in series.items():
        buckets = [sample for sample in own if sample.name.endswith("_bucket")]
        counts = [0, *(int(sample.value) for sample in buckets)]
        (total,) = (sample.value for sample in own if sample.name.endswith("_sum"))
        yield HistogramDataPoint(
            attributes=dict(labels),
            start_time_unix_nano=start,
            time_unix_nano=now,
            count=counts[-1],
            sum=total,
            bucket_counts=[after - before for before, after in pairwise(counts)],
            explicit_bounds=[float(bucket.labels["le"]) for bucket in buckets[:-1]],
            # They are not known, and optional in the protocol.
            min=None,  # type: ignore[arg-type]
            max=None,  # type: ignore[arg-type]
            exemplars=_exemplars(buckets),
        )


def _exemplars(samples: Iterable[Sample]) -> list[Exemplar]:
    return [
        Exemplar(
            {name: value for name, value in sample.exemplar.labels.items() if name != "trace_id"},
            float(sample.exemplar.value),
            int(float(sample.exemplar.timestamp or 0) * 1e9),
            # The SDK encodes a trace id only with a span id; of zeros it means none.
            span_id=0,
            trace_id=int(sample.exemplar.labels.get("trace_id", "0"), 16),
        )
        for sample in samples
        if sample.exemplar
    ]
