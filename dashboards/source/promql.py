"""Expressions: selecting series as the variables say, and counting what counters missed."""

from dataclasses import dataclass

PREFIX = "azure_scheduled_events_"

# Metrics that have a series per event or type of event, and so obey the variable `event_type`.
_TYPED = ("pending", "event_", "transitions_", "notice_", "impact_", "observed_pause_")


@dataclass(frozen=True)
class Scope:
    """Which series a dashboard is about; ``one`` is true where `$instance` is a single VM."""

    one: bool = False

    @property
    def vms(self) -> str:
        """The matchers for job and instance; only a variable of many values is written as a regex."""
        return f'job=~"$job",instance{"=" if self.one else "=~"}"$instance"'

    def metric(self, name: str, *matchers: str) -> str:
        """Select a metric of the exporter, named without prefix."""
        typed = ('event_type=~"$event_type"',) if name.startswith(_TYPED) else ()
        return f"{PREFIX}{name}{{{','.join((self.vms, *typed, *matchers))}}}"

    def other(self, name: str) -> str:
        """Select a metric by its whole name: those of the process, and Prometheus' own `up`."""
        return f"{name}{{{self.vms}}}"


def grew(series: str, window: str = "$__range") -> str:
    """Say by how much a counter grew, a series for each of its own.

    `increase` alone does not count the first value of a series that appears within the window, as those
    of an event type that Azure has added do with the first event.
    """
    born = f"min_over_time({series}[{window}]) unless {series} offset {window}"
    return f"(increase({series}[{window}]) + ({born}) or increase({series}[{window}]))"


def rises(series: str, by: str) -> str:
    """Say point by point by how much counters grew; those that did not in the whole period are left out.

    A comparison with 0 would leave out points, and columns are drawn as wide as the gaps between points.
    """
    pointwise = f"sum by ({by}) (increase({series}[$__rate_interval]))"
    return f"{pointwise} and sum by ({by}) (increase({series}[$__range] @ end())) > 0"


def mean(scope: Scope, histogram: str, by: str) -> str:
    """Take the mean of what a histogram observed in the period; no series where it observed nothing."""
    total, count = (grew(scope.metric(f"{histogram}_{part}")) for part in ("sum", "count"))
    return f"sum by ({by}) ({total}) / (sum by ({by}) ({count}) > 0)"


def announced(scope: Scope) -> str:
    """Take the mean of the pauses that Azure announced in the period, for each VM and event one."""
    return f"avg by (event_type) (max_over_time({scope.metric('event_duration_seconds')}[$__range]))"


def quantile(share: float, buckets: str, window: str = "$__rate_interval") -> str:
    """Take a quantile of what a histogram of all selected VMs observed; nothing where it observed nothing."""
    return f"histogram_quantile({share}, sum by (le) (rate({buckets}[{window}]))) >= 0"


def states(scope: Scope) -> str:
    """Return for each VM and type 0 for nothing, 1 for Scheduled, 2 for Started, -1 where Azure is silent.

    Labels that users add to their targets stay, so VMs of two clusters may share a name.
    """
    scheduled, started = (
        f"sum without (event_status, target) ({selected} > bool 0)"
        for selected in (
            scope.metric("pending", f'event_status="{status}"', 'target="self"')
            for status in ("Scheduled", "Started")
        )
    )
    both = f"clamp_max(2 * {started} + {scheduled}, 2)"
    up = scope.metric("up")
    return (
        f"{both} * ignoring (event_type) group_left () {up} + ignoring (event_type) group_left () ({up} - 1)"
    )


def busy(scope: Scope) -> str:
    """Select the VMs and types for which something was pending at some time of the period."""
    pending = scope.metric("pending", 'target="self"')
    return f"sum without (event_status, target) (max_over_time({pending}[$__range] @ end())) > 0"


def gone(scope: Scope, outcome: str) -> str:
    """Select the events of the period that ended so without ever having been seen Started, each once.

    Counters do not know which event they counted, so that one event for twenty VMs would be twenty; the
    series of events do.
    """
    seen, now = scope.metric("event_info"), "group by (event_id)"
    scheduled = scope.metric("event_info", 'event_status="Scheduled"')
    started = scope.metric("event_info", 'event_status="Started"')
    counted = scope.metric("transitions_total", f'transition="{outcome}"')
    told = f"sum without (transition) ({grew(counted)}) > 0"
    return (
        f"{now} (last_over_time({scheduled}[$__range])"
        f" and ignoring (event_id, event_status, event_source, resource_type, target, description) ({told}))"
        f" unless {now} (last_over_time({started}[$__range])) unless {now} ({seen})"
    )


def number(vector: str, alive: str) -> str:
    """Count the series of a vector: 0 where it is empty, but nothing where no exporter is scraped at all."""
    return f"count({vector}) or 0 * count({alive})"
