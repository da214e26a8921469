"""What can change from one second to the next, worked out from the newest snapshot at the scrape."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from exporter import config
from exporter.clock import Clock
from exporter.events import EVENT_STATUSES, EVENT_TYPES, Target
from exporter.health import Health, Trouble
from exporter.lifecycle import TrackedEvent
from exporter.metrics.names import PREFIX
from exporter.snapshot import Snapshot

_INFO_LABELS = (
    "event_id",
    "event_type",
    "event_status",
    "event_source",
    "resource_type",
    "target",
    "description",
)


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
        *,
        waiting: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """Read ``snapshot`` and ``waiting``, the number of messages for each target, at every scrape."""
        self._snapshot = snapshot
        self._health = health
        self._clock = clock
        self._waiting = waiting

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Give the families for one scrape."""
        return self._families(self._snapshot())

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Give all families that there can be, so that a scrape may ask for some by their names."""
        return self._families(Snapshot(metrics=config.Metrics(resources=True)))

    def _families(self, snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
        yield from _watch(snapshot)
        yield _degraded(self._health)
        yield _waiting(self._waiting())
        yield _pending(snapshot)
        shown = [tracked for tracked in snapshot.current if snapshot.has_series(tracked)]
        yield _info(shown)
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


def _waiting(counts: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        f"{PREFIX}_notifications_pending", "Messages that wait to be delivered.", labels=["target"]
    )
    for target, count in counts.items():
        family.add_metric((target,), count)
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
        tally[tracked.event.event_type, tracked.event.event_status, str(tracked.target)] += 1
    for labels, count in tally.items():
        family.add_metric(labels, count)
    return family


def _info(shown: Iterable[TrackedEvent]) -> GaugeMetricFamily:
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
                str(tracked.target),
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
