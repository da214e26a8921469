"""What approvals count."""

from collections.abc import Iterable
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter

from exporter.metrics import PREFIX


class ApprovalOutcome(StrEnum):
    """The outcome of an approval attempt by rule."""

    APPROVED = "approved"
    DRY_RUN = "dry_run"
    FAILED = "failed"
    LIMITED = "limited"


class Counters:
    """Approval attempts by rule and outcome."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = Counter(
            "approvals",
            "Approval attempts by rule and outcome.",
            ["rule", "outcome"],
            namespace=PREFIX,
            registry=registry,
        )

    def expect(self, rules: Iterable[str]) -> None:
        """Create the series of these rules, at 0."""
        for rule in rules:
            for outcome in ApprovalOutcome:
                self._attempts.labels(rule, outcome.value)

    def decided(self, rule: str, outcome: ApprovalOutcome) -> None:
        """Count an approval attempt."""
        self._attempts.labels(rule, outcome.value).inc()
