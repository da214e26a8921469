"""Gauges computed from the latest snapshot at every scrape."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from exporter.clock import Clock
from exporter.health import DegradedReason, Health
from exporter.metrics.counted import PREFIX
from exporter.model.events import EVENT_STATUSES, EVENT_TYPES, Target
from exporter.model.lifecycle import TrackedEvent
from exporter.model.views import NO_APPROVAL, ApprovalView, Snapshot
from exporter.model.vm import VirtualMachine

_INFO_LABELS = (
    "event_id",
    "event_type",
    "event_status",
    "event_source",
    "resource_type",
    "target",
    "description",
)


class Sources(NamedTuple):
    """What the snapshot does not have.

    ``waiting`` returns the number of messages per target, ``approval`` the state of an event's approval,
    ``out_of_service`` why this VM should get no new work, or "".
    """

    waiting: Callable[[], Mapping[str, int]] = dict
    approval: Callable[[TrackedEvent], ApprovalView] = lambda _: NO_APPROVAL
    out_of_service: Callable[[], str] = str


class SnapshotCollector(Collector):
    """The state at the time of the scrape.

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
        sources: Sources | None = None,
        node: str = "",
    ) -> None:
        """Call ``snapshot`` and ``sources`` at every scrape; ``node`` is the name of the Node, if any."""
        self._snapshot = snapshot
        self._health = health
        self._clock = clock
        self._sources = sources or Sources()
        self._node = node

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families for one scrape."""
        return self._families(self._snapshot())

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield every possible family, so that a scrape can select some by name."""
        return self._families(Snapshot(resources=True))

    def _families(self, snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
        yield from _watch(snapshot)
        yield _instance(snapshot.vm, self._node)
        yield GaugeMetricFamily(
            f"{PREFIX}_in_service",
            "1 while this VM may get new work, 0 while an event takes it out of service.",
            value=not self._sources.out_of_service(),
        )
        yield _degraded(self._health)
        yield _waiting(self._sources.waiting())
        yield _pending(snapshot)
        shown = [tracked for tracked in snapshot.current if snapshot.has_series(tracked)]
        yield _info(shown)
        yield from _numbers(shown, self._clock.now())
        yield _approvals(shown, self._sources.approval)
        if snapshot.resources:
            yield _resources(shown)


def _watch(snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    yield GaugeMetricFamily(
        f"{PREFIX}_up", "1 if the last poll of IMDS returned a valid document.", value=snapshot.up
    )
    success = GaugeMetricFamily(
        f"{PREFIX}_last_success_timestamp_seconds",
        "Unix time of the last poll that returned a valid document.",
    )
    if snapshot.last_success is not None:
        success.add_metric((), snapshot.last_success.timestamp())
    yield success
    incarnation = GaugeMetricFamily(
        f"{PREFIX}_document_incarnation",
        "DocumentIncarnation of the latest document; Azure increments it at every change.",
    )
    if snapshot.incarnation is not None:
        incarnation.add_metric((), snapshot.incarnation)
    yield incarnation


def _instance(vm: VirtualMachine | None, node: str) -> GaugeMetricFamily:
    labels = (
        {
            "instance_name": vm.name,
            "computer_name": vm.computer_name,
            "resource_group": vm.resource_group,
            "scale_set": vm.scale_set,
            "location": vm.location,
            "zone": vm.zone,
            "fault_domain": vm.fault_domain,
            "vm_size": vm.size,
        }
        if vm
        else {}
    )
    if node:
        labels["node"] = node
    family = GaugeMetricFamily(
        f"{PREFIX}_instance_info", "What IMDS knows about this VM; always 1.", labels=list(labels)
    )
    if vm:
        family.add_metric(list(labels.values()), 1)
    return family


def _degraded(health: Health) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        f"{PREFIX}_degraded", "1 while the exporter is degraded, by reason.", labels=["reason"]
    )
    present = {problem.reason for problem in health.problems()}
    for reason in DegradedReason:
        family.add_metric((reason.value,), reason in present)
    return family


def _waiting(counts: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        f"{PREFIX}_notifications_pending", "Messages waiting for delivery.", labels=["target"]
    )
    for target, count in counts.items():
        family.add_metric((target,), count)
    return family


def _pending(snapshot: Snapshot) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        f"{PREFIX}_pending",
        "Number of events in the latest document.",
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
    family = GaugeMetricFamily(
        f"{PREFIX}_event_info",
        "Properties of an event in the latest document; always 1.",
        labels=_INFO_LABELS,
    )
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
            "NotBefore of the event as Unix time: its earliest start.",
            lambda t: _timestamp(t.event.not_before),
        ),
        "seconds_to_not_before": (
            "Seconds until NotBefore; negative once it has passed.",
            lambda t: (t.event.not_before - now).total_seconds() if t.event.not_before else None,
        ),
        "duration_seconds": ("Expected duration of the interruption.", lambda t: t.event.duration_seconds),
        "resources": ("Number of resources that the event affects.", lambda t: len(t.event.resources)),
        "first_seen_timestamp_seconds": (
            "Unix time at which the event was first seen.",
            lambda t: _timestamp(t.first_seen),
        ),
        "started_timestamp_seconds": (
            "Unix time at which the event was first seen Started.",
            lambda t: _timestamp(t.started),
        ),
    }
    for name, (meaning, value_of) in meanings.items():
        family = GaugeMetricFamily(f"{PREFIX}_event_{name}", meaning, labels=["event_id", "event_type"])
        for tracked in shown:
            value = value_of(tracked)
            if value is not None:
                family.add_metric((tracked.event.event_id, tracked.event.event_type), value)
        yield family


def _approvals(
    shown: Iterable[TrackedEvent], approval: Callable[[TrackedEvent], ApprovalView]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        f"{PREFIX}_event_approval",
        "State of an event's approval by rule; always 1.",
        labels=["event_id", "state"],
    )
    for tracked in shown:
        state = approval(tracked).state
        if state is not None:
            family.add_metric((tracked.event.event_id, state), 1)
    return family


def _resources(shown: Iterable[TrackedEvent]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        f"{PREFIX}_event_resource_info",
        "Resource that an event affects; always 1.",
        labels=["event_id", "event_type", "resource"],
    )
    for tracked in shown:
        for resource in dict.fromkeys(tracked.event.resources):
            family.add_metric((tracked.event.event_id, tracked.event.event_type, resource), 1)
    return family


def _timestamp(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()
