"""Every metric of the program, in one place.

What only grows is counted here as it happens; what can change from one second to the next is worked out from
the newest snapshot when Prometheus scrapes.
"""

import platform
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from exporter import __version__
from exporter.clock import Clock
from exporter.errors import PollOutcome
from exporter.events import EVENT_STATUSES, EVENT_TYPES, Target, trace_id
from exporter.health import Health, Trouble
from exporter.lifecycle import Occurrence, TrackedEvent, Transition
from exporter.snapshot import Snapshot

PREFIX = "azure_scheduled_events"

_INFO_LABELS = (
    "event_id",
    "event_type",
    "event_status",
    "event_source",
    "resource_type",
    "target",
    "description",
)
_POLL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 150)
_NOTICE_BUCKETS = (0, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 21600, 86400, 604800)
_IMPACT_BUCKETS = (1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200)


class Metrics:
    """What is counted as it happens; register it, and a `SnapshotCollector`, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._polls = Counter(
            f"{PREFIX}_polls",
            "Requests to IMDS for the document, by how they ended.",
            ["outcome"],
            registry=registry,
        )
        self._poll_duration = Histogram(
            f"{PREFIX}_poll_duration_seconds",
            "How long IMDS took to answer, or to fail.",
            buckets=_POLL_BUCKETS,
            registry=registry,
        )
        self._transitions = Counter(
            f"{PREFIX}_transitions",
            "Changes of state of events, each counted once.",
            ["event_type", "transition"],
            registry=registry,
        )
        self._notice = Histogram(
            f"{PREFIX}_notice_seconds",
            "NotBefore minus the time at which the event was first seen.",
            ["event_type"],
            buckets=_NOTICE_BUCKETS,
            registry=registry,
        )
        self._impact = Histogram(
            f"{PREFIX}_impact_seconds",
            "Time from Started to gone, where both moments were watched.",
            ["event_type"],
            buckets=_IMPACT_BUCKETS,
            registry=registry,
        )
        self._invalid_events = Counter(
            f"{PREFIX}_invalid_events",
            "Events, or fields of events, in changed documents that could not be understood.",
            registry=registry,
        )
        self._reload_successful = Gauge(
            f"{PREFIX}_config_last_reload_successful",
            "Whether the last attempt to load the configuration succeeded.",
            registry=registry,
        )
        self._reload_timestamp = Gauge(
            f"{PREFIX}_config_last_reload_success_timestamp_seconds",
            "When the configuration was last loaded.",
            registry=registry,
        )
        build_info = Gauge(
            f"{PREFIX}_build_info",
            "The running program.",
            ["version", "python_version"],
            registry=registry,
        )
        build_info.labels(__version__, platform.python_version()).set(1)
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        for outcome in PollOutcome:
            self._polls.labels(outcome.value)
        for event_type in EVENT_TYPES:
            for transition in Transition:
                self._transitions.labels(event_type, transition.value)

    def polled(self, outcome: PollOutcome, seconds: float) -> None:
        """Count one request to IMDS, and how long it took."""
        self._polls.labels(outcome.value).inc()
        self._poll_duration.observe(seconds)

    def happened(self, occurrence: Occurrence) -> None:
        """Count one transition, with the notice or the impact that it ends the wait for."""
        tracked = occurrence.tracked
        event_type = tracked.event.event_type
        self._transitions.labels(event_type, occurrence.transition.value).inc(
            exemplar={"trace_id": trace_id(tracked.ids[0])}
        )
        if occurrence.notice is not None:
            self._notice.labels(event_type).observe(occurrence.notice.total_seconds())
        if occurrence.impact is not None:
            self._impact.labels(event_type).observe(occurrence.impact.total_seconds())

    def misunderstood(self, count: int) -> None:
        """Count what could not be understood in a changed document."""
        self._invalid_events.inc(count)

    def loaded(self, at: datetime | None) -> None:
        """Note how loading the configuration went: when it succeeded, or None where it failed."""
        self._reload_successful.set(at is not None)
        if at is not None:
            self._reload_timestamp.set(at.timestamp())


class SnapshotCollector(Collector):
    """What is so at the moment of the scrape.

    With one Freeze scheduled for this VM, among others::

        azure_scheduled_events_up 1.0
        azure_scheduled_events_pending{event_status="Scheduled",event_type="Freeze",target="self"} 1.0
        azure_scheduled_events_event_seconds_to_not_before{event_id="C7061BAC-...",event_type="Freeze"} 893.2
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        health: Health,
        clock: Clock,
    ) -> None:
        self._snapshot = snapshot
        self._health = health
        self._clock = clock

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Give the families for one scrape."""
        snapshot = self._snapshot()
        yield from _watch(snapshot)
        yield _degraded(self._health)
        yield _pending(snapshot)
        shown = [tracked for tracked in snapshot.current if snapshot.has_series(tracked)]
        yield _info(shown, snapshot)
        yield from _numbers(shown, self._clock.now())
        if snapshot.metrics.resources:
            yield _resources(shown)


def _watch(snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    yield GaugeMetricFamily(
        f"{PREFIX}_up", "Whether the last poll of IMDS gave a valid document.", value=snapshot.up
    )
    success = GaugeMetricFamily(
        f"{PREFIX}_last_success_timestamp_seconds", "When IMDS last gave a valid document."
    )
    if snapshot.last_success is not None:
        success.add_metric((), snapshot.last_success.timestamp())
    yield success
    incarnation = GaugeMetricFamily(
        f"{PREFIX}_document_incarnation",
        "DocumentIncarnation of the newest document; grows by one at each change.",
    )
    if snapshot.incarnation is not None:
        incarnation.add_metric((), snapshot.incarnation)
    yield incarnation


def _degraded(health: Health) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        f"{PREFIX}_degraded", "Whether something is wrong with the exporter's own house.", labels=["reason"]
    )
    present = {problem.trouble for problem in health.problems()}
    for trouble in Trouble:
        family.add_metric((trouble.value,), trouble in present)
    return family


def _pending(snapshot: Snapshot) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        f"{PREFIX}_pending",
        "Events that the newest document lists.",
        labels=["event_type", "event_status", "target"],
    )
    tally = Tally(
        {
            (kind, status, str(target)): 0
            for kind in EVENT_TYPES
            for status in EVENT_STATUSES
            for target in Target
        }
    )
    for tracked in snapshot.current:
        tally[tracked.event.event_type, tracked.event.event_status, str(snapshot.target(tracked))] += 1
    for labels, count in tally.items():
        family.add_metric(labels, count)
    return family


def _info(shown: Iterable[TrackedEvent], snapshot: Snapshot) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{PREFIX}_event_info", "What Azure says of an event.", labels=_INFO_LABELS)
    for tracked in shown:
        event = tracked.event
        family.add_metric(
            (
                event.event_id,
                event.event_type,
                event.event_status,
                event.event_source,
                event.resource_type,
                str(snapshot.target(tracked)),
                event.description,
            ),
            1,
        )
    return family


def _numbers(shown: Iterable[TrackedEvent], now: datetime) -> Iterator[GaugeMetricFamily]:
    meanings: dict[str, tuple[str, Callable[[TrackedEvent], float | None]]] = {
        "not_before_timestamp_seconds": (
            "NotBefore: the earliest start.",
            lambda t: _timestamp(t.event.not_before),
        ),
        "seconds_to_not_before": (
            "Seconds left to NotBefore; negative once it has passed.",
            lambda t: (t.event.not_before - now).total_seconds() if t.event.not_before else None,
        ),
        "duration_seconds": ("Interruption that Azure expects.", lambda t: t.event.duration_seconds),
        "resources": ("Number of affected resources.", lambda t: len(t.event.resources)),
        "first_seen_timestamp_seconds": ("When it was first seen.", lambda t: _timestamp(t.first_seen)),
        "started_timestamp_seconds": ("When it was first seen Started.", lambda t: _timestamp(t.started)),
    }
    for name, (meaning, value_of) in meanings.items():
        family = GaugeMetricFamily(f"{PREFIX}_event_{name}", meaning, labels=["event_id", "event_type"])
        for tracked in shown:
            value = value_of(tracked)
            if value is not None:
                family.add_metric((tracked.event.event_id, tracked.event.event_type), value)
        yield family


def _resources(shown: Iterable[TrackedEvent]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        f"{PREFIX}_event_resource_info",
        "A VM that an event hits.",
        labels=["event_id", "event_type", "resource"],
    )
    for tracked in shown:
        for resource in dict.fromkeys(tracked.event.resources):
            family.add_metric((tracked.event.event_id, tracked.event.event_type, resource), 1)
    return family


def _timestamp(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()
