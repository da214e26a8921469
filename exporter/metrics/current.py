"""Gauges computed from the latest snapshot at every scrape."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from itertools import product

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from exporter.clock import Clock
from exporter.health import DegradedReason, Health
from exporter.metrics.counted import PREFIX
from exporter.model.events import EVENT_STATUSES, EVENT_TYPES, Target
from exporter.model.lifecycle import TrackedEvent
from exporter.model.views import NO_APPROVAL, ApprovalView, Snapshot
from exporter.model.vm import VirtualMachine

_Samples = Iterable[tuple[Sequence[str], float]]


@dataclass(eq=False)
class SnapshotCollector(Collector):
    """Collects the state at the time of the scrape.

    With one Freeze scheduled for this VM, among others::

        azure_scheduled_events_up 1.0
        azure_scheduled_events_pending{event_status="Scheduled",event_type="Freeze",target="self"} 1.0
        azure_scheduled_events_event_seconds_to_not_before{event_id="C7061BAC-...",event_type="Freeze"} 893.2

    ``waiting`` returns the number of queued messages per target, ``approval`` the state of an event's
    approval, ``out_of_service`` the reason why this VM should get no new work, or "". ``node`` is the name of
    the Node, if any.
    """

    snapshot: Callable[[], Snapshot]
    health: Health
    clock: Clock
    _: KW_ONLY
    waiting: Callable[[], Mapping[str, int]] = dict
    approval: Callable[[TrackedEvent], ApprovalView] = lambda _: NO_APPROVAL
    out_of_service: Callable[[], str] = str
    node: str = ""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families for one scrape."""
        return self._families(self.snapshot())

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield every possible family, so that ``name[]`` can select from them."""
        return self._families(Snapshot(resources=True))

    def _families(self, snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
        yield from _watch(snapshot)
        yield _instance(snapshot.vm, self.node)
        yield _gauge(
            "in_service",
            "1 while this VM may get new work, 0 while an event takes it out of service.",
            [((), not self.out_of_service())],
        )
        present = {problem.reason for problem in self.health.problems()}
        yield _gauge(
            "degraded",
            "1 while the exporter is degraded, by reason.",
            [((reason.value,), reason in present) for reason in DegradedReason],
            ["reason"],
        )
        yield _gauge(
            "notifications_pending",
            "Messages waiting for delivery.",
            [((target,), count) for target, count in self.waiting().items()],
            ["target"],
        )
        yield _pending(snapshot)
        shown = [tracked for tracked in snapshot.current if snapshot.has_series(tracked)]
        yield _info(shown)
        yield from _numbers(shown, self.clock.now())
        states = [(tracked.event.event_id, self.approval(tracked).state) for tracked in shown]
        yield _gauge(
            "event_approval",
            "State of an event's approval by rule; always 1.",
            [((event_id, state), 1) for event_id, state in states if state is not None],
            ["event_id", "state"],
        )
        if snapshot.resources:
            yield _resources(shown)


def _gauge(name: str, meaning: str, samples: _Samples, labels: Sequence[str] = ()) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", meaning, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _watch(snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    success, incarnation = snapshot.last_success, snapshot.incarnation
    yield _gauge("up", "1 if the last poll of IMDS returned a valid document.", [((), snapshot.up)])
    yield _gauge(
        "last_success_timestamp_seconds",
        "Unix time of the last poll that returned a valid document.",
        [] if success is None else [((), success.timestamp())],
    )
    yield _gauge(
        "document_incarnation",
        "DocumentIncarnation of the latest document; Azure increments it at every change.",
        [] if incarnation is None else [((), incarnation)],
    )


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
    samples = [(list(labels.values()), 1)] if vm else []
    return _gauge("instance_info", "What IMDS knows about this VM; always 1.", samples, list(labels))


def _pending(snapshot: Snapshot) -> GaugeMetricFamily:
    # Alerts need series that exist before the first event.
    tally = Tally(dict.fromkeys(product(EVENT_TYPES, EVENT_STATUSES, map(str, Target)), 0))
    for tracked in snapshot.current:
        tally[tracked.event.event_type, tracked.event.event_status, str(tracked.target)] += 1
    return _gauge(
        "pending",
        "Number of events in the latest document.",
        tally.items(),
        ["event_type", "event_status", "target"],
    )


def _info(shown: Iterable[TrackedEvent]) -> GaugeMetricFamily:
    names = ("event_id", "event_type", "event_status", "event_source", "resource_type", "description")
    return _gauge(
        "event_info",
        "Properties of an event in the latest document; always 1.",
        [((*(getattr(t.event, name) for name in names), str(t.target)), 1) for t in shown],
        [*names, "target"],
    )


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
        values = [((t.event.event_id, t.event.event_type), value_of(t)) for t in shown]
        samples = [(labels, value) for labels, value in values if value is not None]
        yield _gauge(f"event_{name}", meaning, samples, ["event_id", "event_type"])


def _resources(shown: Iterable[TrackedEvent]) -> GaugeMetricFamily:
    return _gauge(
        "event_resource_info",
        "Resource that an event affects; always 1.",
        [
            ((tracked.event.event_id, tracked.event.event_type, resource), 1)
            for tracked in shown
            for resource in dict.fromkeys(tracked.event.resources)
        ],
        ["event_id", "event_type", "resource"],
    )


def _timestamp(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()
