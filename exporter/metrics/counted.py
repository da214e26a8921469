"""What only grows, counted as it happens."""

import platform
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from exporter import __version__
from exporter.errors import PollOutcome
from exporter.events import EVENT_TYPES, trace_id
from exporter.hooks.jobs import HookOutcome
from exporter.lifecycle import Occurrence, Transition
from exporter.messages import Outcome
from exporter.metrics.names import PREFIX

# Azure may add types. Series of a counter stay for as long as the process: there must be an end to them.
_MOST_UNKNOWN_TYPES = 20
_OTHER = "other"

_POLL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 150)
_NOTICE_BUCKETS = (0, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 21600, 86400, 604800)
_DELAY_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400)
_HOOK_BUCKETS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_PAUSE_BUCKETS = (0.25, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 60, 120)
_IMPACT_BUCKETS = (1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200)


class ApprovalOutcome(StrEnum):
    """What became of a rule's wish to approve an event."""

    APPROVED = "approved"
    DRY_RUN = "dry_run"
    FAILED = "failed"
    LIMITED = "limited"


class SpanOutcome(StrEnum):
    """How exporting a span ended."""

    EXPORTED = "exported"
    DROPPED = "dropped"


class Metrics:
    """What is counted as it happens; register it, and a `SnapshotCollector`, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, namespace=PREFIX, registry=registry)
        gauge = partial(Gauge, namespace=PREFIX, registry=registry)
        histogram = partial(Histogram, namespace=PREFIX, registry=registry)
        self._polls = counter("polls", "Requests to IMDS for the document, by how they ended.", ["outcome"])
        self._poll_duration = histogram(
            "poll_duration_seconds", "How long IMDS took to answer, or to fail.", buckets=_POLL_BUCKETS
        )
        self._transitions = counter(
            "transitions", "Changes of state of events, each counted once.", ["event_type", "transition"]
        )
        self._notice = histogram(
            "notice_seconds",
            "NotBefore minus the time at which the event was first seen.",
            ["event_type"],
            buckets=_NOTICE_BUCKETS,
        )
        self._impact = histogram(
            "impact_seconds",
            "Time from Started to gone, where both moments were watched.",
            ["event_type"],
            buckets=_IMPACT_BUCKETS,
        )
        self._invalid_events = counter(
            "invalid_events",
            "Events, or fields of events, in changed documents that could not be understood.",
        )
        self._notifications = counter(
            "notifications",
            "Messages by how delivering them ended; a try that failed counts once, and is tried again.",
            ["target", "outcome"],
        )
        self._notification_delay = histogram(
            "notification_delay_seconds",
            "Time from a transition to the delivery of its message.",
            ["target"],
            buckets=_DELAY_BUCKETS,
        )
        self._pauses = histogram(
            "observed_pause_seconds",
            "Pauses of this VM that the exporter itself noticed while an event was Started for it.",
            ["event_type"],
            buckets=_PAUSE_BUCKETS,
        )
        self._approvals = counter(
            "approvals",
            "What became of rules' wishes to approve; a try that failed counts once, and is tried again.",
            ["rule", "outcome"],
        )
        self._hooks = counter("hooks", "Runs of hooks, by how they ended.", ["hook", "outcome"])
        self._hook_duration = histogram(
            "hook_duration_seconds", "How long runs of hooks took.", ["hook"], buckets=_HOOK_BUCKETS
        )
        self._spans = counter("spans", "Spans by how exporting them ended.", ["outcome"])
        self._reload_successful = gauge(
            "config_last_reload_successful", "Whether the last attempt to load the configuration succeeded."
        )
        self._reload_timestamp = gauge(
            "config_last_reload_success_timestamp_seconds", "When the configuration was last loaded."
        )
        build_info = gauge("build_info", "The running program.", ["version", "python_version"])
        build_info.labels(__version__, platform.python_version()).set(1)
        self._unknown_types: set[str] = set()
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        for reason in PollOutcome:
            self._polls.labels(reason.value)
        for outcome in SpanOutcome:
            self._spans.labels(outcome.value)
        for event_type in EVENT_TYPES:
            for transition in Transition:
                self._transitions.labels(event_type, transition.value)

    def polled(self, outcome: PollOutcome, seconds: float) -> None:
        """Count one request to IMDS, and how long it took."""
        self._polls.labels(outcome.value).inc()
        self._poll_duration.observe(seconds)

    def happened(self, occurrence: Occurrence) -> None:
        """Count one transition, with the notice or the impact that it ends the wait for.

        Of types that Azure may add the first 20 have series of their own; the rest are counted as ``other``.
        """
        tracked = occurrence.tracked
        event_type = self._label(tracked.event.event_type)
        self._transitions.labels(event_type, occurrence.transition.value).inc(
            exemplar={"trace_id": trace_id(tracked.ids[0])}
        )
        if occurrence.notice is not None:
            self._notice.labels(event_type).observe(occurrence.notice.total_seconds())
        if occurrence.impact is not None:
            self._impact.labels(event_type).observe(occurrence.impact.total_seconds())

    def notifying(self, targets: Iterable[str]) -> None:
        """Begin to count for targets, at 0."""
        for target in targets:
            for outcome in Outcome:
                self._notifications.labels(target, outcome.value)
            self._notification_delay.labels(target)

    def delivered(self, target: str, delays: Sequence[float]) -> None:
        """Count messages that arrived, each with the seconds since its transition."""
        self._notifications.labels(target, Outcome.DELIVERED.value).inc(len(delays))
        for delay in delays:
            self._notification_delay.labels(target).observe(delay)

    def failed(self, target: str) -> None:
        """Count a try to deliver that failed."""
        self._notifications.labels(target, Outcome.FAILED.value).inc()

    def expired(self, target: str, count: int) -> None:
        """Count messages that were given up."""
        self._notifications.labels(target, Outcome.EXPIRED.value).inc(count)

    def misunderstood(self, count: int) -> None:
        """Count what could not be understood in a changed document."""
        self._invalid_events.inc(count)

    def paused(self, event_type: str, seconds: float) -> None:
        """Count a pause that was noticed while an event of this type was Started."""
        self._pauses.labels(self._label(event_type)).observe(seconds)

    def approving(self, rules: Iterable[str]) -> None:
        """Begin to count for rules, at 0."""
        for rule in rules:
            for outcome in ApprovalOutcome:
                self._approvals.labels(rule, outcome.value)

    def decided(self, rule: str, outcome: ApprovalOutcome) -> None:
        """Count what became of a rule's wish to approve."""
        self._approvals.labels(rule, outcome.value).inc()

    def hooking(self, hooks: Iterable[str]) -> None:
        """Begin to count for hooks, at 0."""
        for hook in hooks:
            for outcome in HookOutcome:
                self._hooks.labels(hook, outcome.value)
            self._hook_duration.labels(hook)

    def hook_ended(self, hook: str, outcome: HookOutcome, seconds: float) -> None:
        """Count a run of a hook, and how long it took."""
        self._hooks.labels(hook, outcome.value).inc()
        self._hook_duration.labels(hook).observe(seconds)

    def spans_exported(self, count: int) -> None:
        """Count spans that a receiver took."""
        self._spans.labels(SpanOutcome.EXPORTED.value).inc(count)

    def spans_dropped(self, count: int) -> None:
        """Count spans that no receiver will get."""
        self._spans.labels(SpanOutcome.DROPPED.value).inc(count)

    def _label(self, event_type: str) -> str:
        if event_type in EVENT_TYPES or event_type in self._unknown_types:
            return event_type
        if len(self._unknown_types) == _MOST_UNKNOWN_TYPES:
            return _OTHER
        self._unknown_types.add(event_type)
        return event_type

    def loaded(self, at: datetime | None) -> None:
        """Note how loading the configuration went: when it succeeded, or None where it failed."""
        self._reload_successful.set(at is not None)
        if at is not None:
            self._reload_timestamp.set(at.timestamp())
