"""Counters that several outputs share: of deliveries, and of runs of hooks and of the drain."""

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram

from exporter.metrics.prefix import PREFIX
from exporter.model.jobs import HookOutcome
from exporter.model.messages import Outcome, Severity


class DeliveryCounters:
    """What becomes of messages and alerts, by target."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._outcomes = Counter(
            "notifications",
            "Delivered, expired and refused messages, and failed attempts, by target and outcome.",
            ["target", "outcome"],
            namespace=PREFIX,
            registry=registry,
        )
        self._delay = Histogram(
            "notification_delay_seconds",
            "Time from a transition to the delivery of its message.",
            ["target"],
            namespace=PREFIX,
            registry=registry,
            buckets=(0.3, 1, 3, 10, 60, 600, 3600, 86400),
        )

    def expect(self, targets: Iterable[str]) -> None:
        """Create the series of these targets, at 0."""
        for target in targets:
            for outcome in Outcome:
                self._outcomes.labels(target, outcome.value)
            self._delay.labels(target)

    def delivered(self, target: str, delays: Sequence[float]) -> None:
        """Count delivered messages, each with the seconds since its transition."""
        self._outcomes.labels(target, Outcome.DELIVERED.value).inc(len(delays))
        for delay in delays:
            self._delay.labels(target).observe(delay)

    def failed(self, target: str) -> None:
        """Count a failed delivery attempt."""
        self._outcomes.labels(target, Outcome.FAILED.value).inc()

    def given_up(self, target: str, outcome: Outcome, count: int) -> None:
        """Count messages that expired or were refused."""
        self._outcomes.labels(target, outcome.value).inc(count)


class HookCounters:
    """What becomes of runs of hooks and of the drain, by hook."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._outcomes = Counter(
            "hooks",
            "Hook runs by hook and outcome.",
            ["hook", "outcome"],
            namespace=PREFIX,
            registry=registry,
        )
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
        """Create the series of these hooks, at 0."""
        for hook in hooks:
            for outcome in HookOutcome:
                self._outcomes.labels(hook, outcome.value)
            for severity in (Severity.WARNING, Severity.CRITICAL):
                self._failures.labels(hook, severity.value)
            self._duration.labels(hook)

    def ended(self, hook: str, outcome: HookOutcome, seconds: float) -> None:
        """Count a run and its duration."""
        self._outcomes.labels(hook, outcome.value).inc()
        self._duration.labels(hook).observe(seconds)

    def failed(self, hook: str, severity: Severity, count: int = 1) -> None:
        """Count failures by their severity, beside `ended`."""
        self._failures.labels(hook, severity.value).inc(count)

    def dropped(self, hook: str, count: int) -> None:
        """Count runs that were given up before they began."""
        self._outcomes.labels(hook, HookOutcome.FAILED.value).inc(count)
        self.failed(hook, Severity.WARNING, count)
