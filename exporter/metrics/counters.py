"""Counters and histograms, updated as things happen: those of the watch, and those that two outputs share."""

import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from exporter import __version__
from exporter.errors import PollOutcome
from exporter.model.events import EVENT_TYPES, trace_id
from exporter.model.jobs import HookOutcome
from exporter.model.lifecycle import Occurrence, Transition
from exporter.model.messages import Outcome, Severity

PREFIX = "azure_scheduled_events"  # the first part of the name of every metric
# Azure may add types. The series of a counter are never removed, so their number has to be bounded.
_MOST_UNKNOWN_TYPES = 20
_OTHER = "other"

# Every VM of a fleet pays for each series. These transitions have zeros only for the types for which they are
# to be expected, or once there are rules and hooks.
_RARE: Mapping[str, Sequence[str]] = {
    "advised": ("Preempt",),
    "imminent": ("Freeze", "Reboot", "Redeploy", "Terminate"),
    "approved": (),
    "hook_failed": (),
}


class Outcomes:
    """A counter of outcomes; ``labels`` are those besides that of the outcome."""

    def __init__(
        self,
        registry: CollectorRegistry,
        name: str,
        text: str,
        outcomes: type[StrEnum],
        labels: Sequence[str] = (),
    ) -> None:
        self._counter = Counter(name, text, [*labels, "outcome"], namespace=PREFIX, registry=registry)
        self._outcomes = outcomes

    def expect(self, *labels: str) -> None:
        """Create the series of these labels, at 0."""
        for outcome in self._outcomes:
            self._counter.labels(*labels, outcome.value)

    def count(self, outcome: StrEnum, *labels: str, times: int = 1) -> None:
        self._counter.labels(*labels, outcome.value).inc(times)


class DeliveryCounters:
    """What becomes of messages and alerts, by target."""

    def __init__(self, registry: CollectorRegistry) -> None:
        text = "Delivered, expired and refused messages, and failed attempts, by target and outcome."
        self._outcomes = Outcomes(registry, "notifications", text, Outcome, ["target"])
        self._delay = Histogram(
            "notification_delay_seconds",
            "Time from a transition to the delivery of its message.",
            ["target"],
            namespace=PREFIX,
            registry=registry,
            buckets=(0.3, 1, 3, 10, 60, 600, 3600, 86400),
        )

    def expect(self, targets: Iterable[str]) -> None:
        for target in targets:
            self._outcomes.expect(target)
            self._delay.labels(target)

    def delivered(self, target: str, delays: Sequence[float]) -> None:
        """Count delivered messages, each with the seconds since its transition."""
        self._outcomes.count(Outcome.DELIVERED, target, times=len(delays))
        for delay in delays:
            self._delay.labels(target).observe(delay)

    def failed(self, target: str) -> None:
        self._outcomes.count(Outcome.FAILED, target)

    def given_up(self, target: str, outcome: Outcome, count: int) -> None:
        self._outcomes.count(outcome, target, times=count)


class HookCounters:
    """What becomes of runs of hooks and of the drain, by hook."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._outcomes = Outcomes(registry, "hooks", "Hook runs by hook and outcome.", HookOutcome, ["hook"])
        self._failures = Counter(
            "hook_failures",
            "Hook runs that failed or timed out, by severity.",
            ["hook", "severity"],
            namespace=PREFIX,
            registry=registry,
        )
        self._duration = Histogram(
            "hook_duration_seconds",
            "Duration of hook runs.",
            ["hook"],
            namespace=PREFIX,
            registry=registry,
            buckets=(1, 10, 60, 300, 3600),
        )

    def expect(self, hooks: Iterable[str]) -> None:
        for hook in hooks:
            self._outcomes.expect(hook)
            for severity in (Severity.WARNING, Severity.CRITICAL):
                self._failures.labels(hook, severity.value)
            self._duration.labels(hook)

    def ended(self, hook: str, outcome: HookOutcome, seconds: float) -> None:
        self._outcomes.count(outcome, hook)
        self._duration.labels(hook).observe(seconds)

    def failed(self, hook: str, severity: Severity, count: int = 1) -> None:
        """Count failures by their severity, beside `ended`."""
        self._failures.labels(hook, severity.value).inc(count)

    def dropped(self, hook: str, count: int) -> None:
        """Count runs that were given up before they began."""
        self._outcomes.count(HookOutcome.FAILED, hook, times=count)
        self.failed(hook, Severity.WARNING, count)


class Metrics:
    """Metrics updated as things happen; register them and a `SnapshotCollector` in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._counter = partial(Counter, namespace=PREFIX, registry=registry)
        self._gauge = partial(Gauge, namespace=PREFIX, registry=registry)
        self._histogram = partial(Histogram, namespace=PREFIX, registry=registry)
        self._unknown_types: set[str] = set()
        self._define_polls()
        self._define_events()
        self._define_process()
        self._start_at_zero()
        self.deliveries = DeliveryCounters(registry)
        self.hooks = HookCounters(registry)

    def _define_polls(self) -> None:
        polls = self._counter("polls", "Requests to IMDS for the scheduled events, by outcome.", ["outcome"])
        # Looking a series up costs more than counting.
        self._polls_by_outcome = {outcome: polls.labels(outcome.value) for outcome in PollOutcome}
        self._poll_duration = self._histogram(
            "poll_duration_seconds",
            "Duration of requests to IMDS, failed ones included.",
            buckets=(0.01, 0.03, 0.1, 1, 10),
        )
        self._invalid_events = self._counter(
            "invalid_events",
            "Events and fields of events that could not be read, counted once per change of the document.",
        )

    def _define_events(self) -> None:
        self._transitions = self._counter(
            "transitions", "Transitions of events, each counted once.", ["event_type", "transition"]
        )
        self._notice = self._histogram(
            "notice_seconds",
            "Time from an event's first sighting to its NotBefore.",
            ["event_type"],
            buckets=(30, 300, 900, 86400, 604800),
        )
        self._impact = self._histogram(
            "impact_seconds",
            "Time from an event's start to its disappearance, if both were observed.",
            ["event_type"],
            buckets=(1, 60, 600, 3600),
        )
        self._unannounced_pauses = self._counter(
            "unannounced_pauses", "Pauses of this VM of 1 s or more while no event was Started for it."
        )
        self._unannounced_seconds = self._counter(
            "unannounced_pause_seconds", "Duration of pauses of this VM while no event was Started for it."
        )
        self._pauses = self._histogram(
            "observed_pause_seconds",
            "Pauses of this VM that the exporter detected while an event was Started for it.",
            ["event_type"],
            buckets=(1, 5, 10, 30, 3600),
        )

    def _define_process(self) -> None:
        self._reload_successful = self._gauge(
            "config_last_reload_successful", "1 if the last attempt to load the configuration succeeded."
        )
        self._reload_timestamp = self._gauge(
            "config_last_reload_success_timestamp_seconds",
            "Unix time of the last successful load of the configuration.",
        )
        build_info = self._gauge(
            "build_info", "Version of the exporter and of Python; always 1.", ["version", "python_version"]
        )
        build_info.labels(__version__, platform.python_version()).set(1)

    def _start_at_zero(self) -> None:
        for transition in Transition:
            self.expect(transition, _RARE.get(transition, EVENT_TYPES))
        for event_type in EVENT_TYPES:
            for histogram in (self._notice, self._impact, self._pauses):
                histogram.labels(event_type)

    def expect(self, transition: Transition, event_types: Iterable[str] = EVENT_TYPES) -> None:
        """Create the series of a transition, at 0."""
        for event_type in event_types:
            self._transitions.labels(event_type, transition.value)

    def polled(self, outcome: PollOutcome, seconds: float) -> None:
        self._polls_by_outcome[outcome].inc()
        self._poll_duration.observe(seconds)

    def happened(self, occurrence: Occurrence) -> None:
        """Count a transition, and observe the notice or the impact time that it determines.

        The first 20 unknown event types get their own series; all further ones are counted as ``other``.
        """
        life = occurrence.life
        event_type = self._label(life.event.event_type)
        exemplar = {"trace_id": trace_id(life.ids[0])}
        self._transitions.labels(event_type, occurrence.transition.value).inc(exemplar=exemplar)
        if occurrence.notice is not None:
            self._notice.labels(event_type).observe(occurrence.notice.total_seconds(), exemplar)
        if occurrence.impact is not None:
            self._impact.labels(event_type).observe(occurrence.impact.total_seconds(), exemplar)

    def misunderstood(self, count: int) -> None:
        """Count the parts of a changed document that could not be decoded."""
        self._invalid_events.inc(count)

    def paused(self, event_type: str, seconds: float) -> None:
        """Count a pause that was detected while an event of this type was Started."""
        self._pauses.labels(self._label(event_type)).observe(seconds)

    def unannounced_pause(self, seconds: float) -> None:
        self._unannounced_pauses.inc()
        self._unannounced_seconds.inc(seconds)

    def _label(self, event_type: str) -> str:
        if event_type in EVENT_TYPES or event_type in self._unknown_types:
            return event_type
        if len(self._unknown_types) == _MOST_UNKNOWN_TYPES:
            return _OTHER
        self._unknown_types.add(event_type)
        return event_type

    def loaded(self, at: datetime | None) -> None:
        """Record a load of the configuration: when it succeeded, or None if it failed."""
        self._reload_successful.set(at is not None)
        if at is not None:
            self._reload_timestamp.set(at.timestamp())
