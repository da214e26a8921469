"""Gauges computed from the latest snapshot at every scrape."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, product

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from exporter.config import Mode
from exporter.health import DegradedReason
from exporter.metrics.counters import PREFIX
from exporter.model.events import EVENT_STATUSES, EVENT_TYPES, Affected, normal_name
from exporter.model.lifecycle import Life, Transition, phase_of
from exporter.model.messages import severity
from exporter.model.views import Snapshot, Views
from exporter.model.vm import VirtualMachine, tag_label

_MOST_RESOURCES = 20_000  # Azure lists a handful of events, of at most 1,000 VMs each

_Samples = Iterable[tuple[Sequence[str], float]]


@dataclass(eq=False)
class SnapshotCollector(Collector):
    """Collects the state at the time of the scrape.

    With one Freeze scheduled for this VM, among others::

        azure_scheduled_events_up 1.0
        azure_scheduled_events_pending{event_status="Scheduled",event_type="Freeze",target="self"} 1.0
        azure_scheduled_events_event_seconds_to_not_before{event_id="C7061BAC-...",event_type="Freeze"} 893.2
    """

    views: Views

    def collect(self) -> Iterator[GaugeMetricFamily]:
        return self._families(self.views.snapshot)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield every possible family, so that ``name[]`` can select from them."""
        return self._families(Snapshot(resources=True))

    def _families(self, snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
        yield from _watch(snapshot)
        yield _instance(snapshot.vm, self.views.node_name)
        yield _gauge(
            "in_service",
            "1 while this VM may get new work, 0 while an event takes it out of service.",
            [((), not self.views.out_of_service())],
        )
        present = {problem.reason for problem in self.views.health.problems()}
        if snapshot.poll_problem is not None:
            present.add(snapshot.poll_problem)
        yield _gauge(
            "degraded",
            "1 while the exporter is degraded, by reason.",
            [((reason.value,), reason in present) for reason in DegradedReason],
            ["reason"],
        )
        yield _gauge(
            "notifications_pending",
            "Messages waiting for delivery.",
            [((target,), count) for target, count in self.views.pending().items()],
            ["target"],
        )
        yield _pending(snapshot)
        shown = [life for life in snapshot.current if snapshot.has_series(life)]
        yield _info(shown, snapshot.instance or "")
        yield _phases(snapshot.current, snapshot.instance or "")
        yield from _numbers(shown, self.views.clock.now())
        is_on = self.views.configuration.approval != Mode.OFF
        states = ((life.event.event_id, self.views.approval(life).state) for life in shown if is_on)
        yield _gauge(
            "event_approval",
            "State of an event's approval by rule; always 1.",
            (((event_id, state), 1) for event_id, state in states if state is not None),
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
            "priority": vm.priority,
            "resource_group": vm.resource_group,
            "scale_set": vm.scale_set,
            "location": vm.location,
            "zone": vm.zone,
            "fault_domain": vm.fault_domain,
            "vm_size": vm.size,
        }
        | {tag_label(name): value for name, value in vm.tags.items()}
        if vm
        else {}
    )
    if node:
        labels["node"] = node
    samples = [(list(labels.values()), 1)] if vm else []
    return _gauge("instance_info", "What IMDS knows about this VM; always 1.", samples, list(labels))


def _pending(snapshot: Snapshot) -> GaugeMetricFamily:
    # Alerts need series that exist before the first event.
    tally = Tally(dict.fromkeys(product(EVENT_TYPES, EVENT_STATUSES, map(str, Affected)), 0))
    for life in snapshot.current:
        tally[life.event.event_type, life.event.event_status, str(life.target)] += 1
    return _gauge(
        "pending",
        "Number of events in the latest document.",
        tally.items(),
        ["event_type", "event_status", "target"],
    )


def _info(shown: Iterable[Life], instance: str) -> GaugeMetricFamily:
    names = ("event_id", "event_type", "event_status", "event_source", "resource_type")
    return _gauge(
        "event_info",
        "Properties of an event in the latest document; always 1.",
        (
            (
                (
                    *(getattr(t.event, name) for name in names),
                    _label(t.event.description),
                    str(t.target),
                    t.instance or instance,
                ),
                1,
            )
            for t in shown
        ),
        [*names, "description", "target", "instance_name"],
    )


def _phases(lives: Iterable[Life], instance: str) -> GaugeMetricFamily:
    """Return all that alerting rules need to know about the events of this VM."""
    names = ("event_id", "event_type", "event_source")
    samples = (
        (
            (
                *(getattr(life.event, name) for name in names),
                life.instance or instance,
                phase,
                severity(phase, life.event.event_type),
            ),
            _timestamp(life.started if phase is Transition.STARTED else life.event.not_before) or 0,
        )
        for life in lives
        if life.target is Affected.SELF
        for phase in [phase_of(life.event)]
    )
    return _gauge(
        "event_phase_timestamp_seconds",
        "Unix time of NotBefore, or of the start once the event has started; 0 if unknown.",
        samples,
        [*names, "instance_name", "phase", "severity"],
    )


def _label(text: str) -> str:
    """Return the start of a text; some receivers refuse a whole scrape for a label of over 1,023 bytes."""
    return text[:500].encode(errors="replace")[:1000].decode(errors="ignore")


def _numbers(shown: Iterable[Life], now: datetime) -> Iterator[GaugeMetricFamily]:
    meanings: dict[str, tuple[str, Callable[[Life], float | None]]] = {
        "seconds_to_not_before": (
            "Seconds until NotBefore; negative once it has passed.",
            lambda t: (t.event.not_before - now).total_seconds() if t.event.not_before else None,
        ),
        "not_before_timestamp_seconds": (
            "NotBefore of the event as Unix time: its earliest start.",
            lambda t: _timestamp(t.event.not_before),
        ),
        "duration_seconds": ("Expected duration of the interruption.", lambda t: t.event.duration_seconds),
        "resources": (
            "Number of resources that the event affects.",
            lambda t: len({normal_name(name) for name in t.event.resources}),
        ),
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
        samples = (
            ((t.event.event_id, t.event.event_type), value)
            for t in shown
            if (value := value_of(t)) is not None
        )
        yield _gauge(f"event_{name}", meaning, samples, ["event_id", "event_type"])


def _resources(shown: Iterable[Life]) -> GaugeMetricFamily:
    samples = (
        ((life.event.event_id, life.event.event_type, resource), 1)
        for life in shown
        for resource in dict.fromkeys(life.event.resources)
    )
    return _gauge(
        "event_resource_info",
        "Resource that an event affects; always 1.",
        islice(samples, _MOST_RESOURCES),
        ["event_id", "event_type", "resource"],
    )


def _timestamp(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()
