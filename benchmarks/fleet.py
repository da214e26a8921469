"""What a fleet costs its Prometheus: the series of a scale set of 200 VMs that all see the same 20 events."""

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, disable_created_metrics

from benchmarks.figure import Figure
from exporter.clock import SystemClock
from exporter.config import Metrics as MetricsSettings
from exporter.metrics import Metrics, SnapshotCollector
from exporter.model.advance import advance
from exporter.model.events import ScheduledEvent
from exporter.model.lifecycle import WatchState
from exporter.model.views import Snapshot
from tests.builders import document, scheduled
from tests.web.support import Scene

VMS = 200
EVENTS = 20
HIT = 10


def series() -> Iterator[Figure]:
    """Count them for all VMs: idle, by default, with all there is, and what a naive exporter would take."""
    disable_created_metrics()  # as the exporter does
    names = [f"set_{number}" for number in range(VMS)]
    events = [
        scheduled(event_id=f"{number:032x}", resources=tuple(names[number * HIT : (number + 1) * HIT]))
        for number in range(EVENTS)
    ]
    idle = sum(_count(name, [], MetricsSettings()) for name in names)
    title = f"{VMS} VMs"
    # Besides these there are six of the process.
    yield Figure("a quiet VM: series", idle / VMS, "series", 214)
    yield Figure(f"{title}, nothing pending: series", idle, "series")
    for words, settings in (
        ("by default", MetricsSettings()),
        ("metrics.events: all", MetricsSettings(events="all")),
        ("metrics.events: all, metrics.resources", MetricsSettings(events="all", resources=True)),
    ):
        total = sum(_count(name, events, settings) for name in names)
        yield Figure(f"{title}, {EVENTS} events of {HIT} VMs: more series, {words}", total - idle, "series")
    naive = VMS * EVENTS * HIT
    yield Figure(f"{title}, one series for each VM, event and resource", naive, "series")


def _count(name: str, events: Sequence[ScheduledEvent], settings: MetricsSettings) -> int:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    step = advance(WatchState(), document(*events), SystemClock().now(), instance=name, watching=True)
    snapshot = Snapshot(
        instance=name,
        up=True,
        ready=True,
        current=tuple(step.state.current.values()),
        all_events=settings.events == "all",
        resources=settings.resources,
    )
    registry.register(SnapshotCollector(Scene(snapshot)))
    for occurrence in step.occurrences:
        if snapshot.has_series(occurrence.life):
            metrics.happened(occurrence)
    return sum(len(family.samples) for family in registry.collect())
