"""Expressions: selecting series as the variables say, and what several panels ask."""

from dataclasses import dataclass

PREFIX = "azure_scheduled_events_"
EVENT = "azure_scheduled_events:event"
"""What the rules of `alerts/` record: the events of each VM as last seen, with NotBefore or the start."""

# Metrics that have a series per event or type of event, and so obey the variable `event_type`.
_TYPED = ("pending", "event_", "transitions_", "notice_", "impact_", "observed_pause_")

_TYPE = 'event_type=~"$event_type"'
_THE_VM = "on (job, cluster, instance)"


@dataclass(frozen=True)
class Scope:
    """Which series a dashboard is about; ``one`` is true where `$instance` is a single VM."""

    one: bool = False

    @property
    def vms(self) -> str:
        """The matchers for job and instance; only a variable of many values is written as a regex."""
        return f'job=~"$job",cluster=~"$cluster",instance{"=" if self.one else "=~"}"$instance"'

    def metric(self, name: str, *matchers: str) -> str:
        """Select a metric of the exporter, named without prefix."""
        typed = (_TYPE,) if name.startswith(_TYPED) else ()
        return f"{PREFIX}{name}{{{','.join((self.vms, *typed, *matchers))}}}"

    def event(self, *matchers: str) -> str:
        """Select the recorded events."""
        return f"{EVENT}{{{','.join((self.vms, _TYPE, *matchers))}}}"

    def other(self, name: str) -> str:
        """Select a metric by its whole name: those of the process, and Prometheus' own `up`."""
        return f"{name}{{{self.vms}}}"


STARTED, NOT_STARTED, CRITICAL = 'phase="started"', 'phase!="started"', 'severity="critical"'
"""Matchers for recorded events."""

_LEVELS = " or ".join(
    f'label_replace(vector({level}), "severity", "{severity}", "", "")'
    for level, severity in enumerate(("info", "warning", "critical"), start=1)
)


def whole(series: str, by: str) -> str:
    """Return the increase of counters point by point: whole events, as `increase` extrapolates."""
    return f"sum by ({by}) (round(increase({series}[$__rate_interval])))"


def rises(series: str, by: str) -> str:
    """Return the increase of counters point by point, without those that did not increase in the period.

    A comparison with 0 would leave out points, and columns are drawn as wide as the gaps between points.
    """
    pointwise = whole(series, by)
    return f"{pointwise} and sum by ({by}) (increase({series}[$__range] @ end())) > 0"


def mean(scope: Scope, histogram: str, by: str) -> str:
    """Take the mean of what a histogram observed in the period; no series where it observed nothing."""
    total, count = (f"increase({scope.metric(f'{histogram}_{part}')}[$__range])" for part in ("sum", "count"))
    return f"sum by ({by}) ({total}) / (sum by ({by}) ({count}) > 0)"


def announced(scope: Scope) -> str:
    """Take the mean of the pauses that Azure announced in the period, for each VM and event one."""
    return f"avg by (event_type) (max_over_time({scope.metric('event_duration_seconds')}[$__range]))"


def notice(scope: Scope) -> str:
    """Return for each VM and event of the period the time from when it was first seen to NotBefore."""
    due, seen = (
        f"last_over_time({scope.metric(f'event_{name}_timestamp_seconds')}[$__range])"
        for name in ("not_before", "first_seen")
    )
    return f"clamp_min({due} - {seen}, 0)"


def quantile(share: float, buckets: str, window: str = "$__rate_interval") -> str:
    """Take a quantile of what a histogram of all selected VMs observed; nothing where it observed nothing."""
    return f"histogram_quantile({share}, sum by (le) (rate({buckets}[{window}]))) >= 0"


def graded(scope: Scope) -> str:
    """Return for each VM and event 1 for info, 2 for warning, 3 for critical, also while the VM is down.

    With one selector, as each is read over the whole period.
    """
    return f"(0 * {scope.event()} + on (severity) group_left () ({_LEVELS}))"


def status(scope: Scope) -> str:
    """Return for each VM and event 2 for Started and 1 for any other status, also while the VM is down."""
    return f"(2 + 0 * {scope.event(STARTED)} or 1 + 0 * {scope.event(NOT_STARTED)})"


def watch(scope: Scope) -> str:
    """Return for each target 1 if its VM is watched, 0 if Azure does not answer, -1 if it is down."""
    return f"({scope.metric('up')} or {scope.other('up')} - 1)"


def watched(scope: Scope) -> str:
    """Return that for each VM and event."""
    return f"(0 * {scope.event()} + {_THE_VM} group_left () max by (job, cluster, instance) {watch(scope)})"


def vms(events: str) -> str:
    """Select the VMs of recorded events, each once."""
    return f"group by (job, cluster, instance) ({events})"


def placed(scope: Scope, condition: str = "", by: str = "") -> str:
    """Count VMs by labels of `instance_info`: all, or those for which ``condition`` has a series.

    A VM that is down keeps its place for a quarter of an hour.
    """
    info = f"last_over_time({scope.metric('instance_info')}[15m])"
    of = f"group by (job, cluster, instance, {by}) ({info})"
    count = f"count by ({by}) ({of})"
    return f"count by ({by}) ({of} and {_THE_VM} {condition}) or 0 * {count}" if condition else count


def number(vector: str, alive: str) -> str:
    """Count the series of a vector: 0 where it is empty, but nothing where no exporter is scraped at all."""
    return f"count({vector}) or 0 * count({alive})"
