"""Expressions: selecting series as the variables say, and counting what counters missed."""

from dataclasses import dataclass

PREFIX = "azure_scheduled_events_"
RECORDED = "azure_scheduled_events:"

PLACES = ("resource_group", "scale_set", "zone")
"""The labels of a VM that recorded series have, and the variables of the same names."""

# Metrics that have a series per event or type of event, and so obey the variable `event_type`.
_TYPED = ("pending", "event_", "transitions_", "notice_", "impact_", "observed_pause_")

_PLACE = ", ".join(PLACES)
_VM_EVENT = "(job, cluster, namespace, instance, event_id)"
_THE_VM = "on (job, cluster, namespace, instance)"
_THE_EVENT = f"on {_VM_EVENT}"


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
        typed = ('event_type=~"$event_type"',) if name.startswith(_TYPED) else ()
        return f"{PREFIX}{name}{{{','.join((self.vms, *typed, *matchers))}}}"

    def recorded(self, name: str, *matchers: str) -> str:
        """Select what the rules of `alerts/` record, named without prefix; `vm` is about VMs, not events."""
        places = () if self.one else tuple(f'{place}=~"${place}"' for place in PLACES)
        typed = () if name == "vm" else ('event_type=~"$event_type"',)
        # Counters have no labels of a place.
        places = () if name.startswith("vm_pause") else places
        return f"{RECORDED}{name}{{{','.join((self.vms, *places, *typed, *matchers))}}}"

    @property
    def any(self) -> str:
        """Select the numbers of VMs in the chosen places: series exist only if any VM is known."""
        chosen = ",".join(f'{name}=~"${name}"' for name in ("job", "cluster", *PLACES))
        return f"{RECORDED}vms{{{chosen}}}"

    def other(self, name: str) -> str:
        """Select a metric by its whole name: those of the process, and Prometheus' own `up`."""
        return f"{name}{{{self.vms}}}"

    def here(self, series: str) -> str:
        """Keep of series about VMs those that an event hit in the period, in the chosen places."""
        hit = f"last_over_time({self.recorded('vm_event_state')}[$__range] @ end())"
        return series if self.one else f"{series} and {_THE_VM} {hit}"

    def known(self, series: str) -> str:
        """Keep of series about VMs and events those that the rules know now, in the chosen places."""
        return f"{series} and {_THE_EVENT} {self.recorded('vm_event')}"

    def listed(self, name: str) -> str:
        """Select a metric about events: its last value where the VM is down and rules know the event."""
        series = self.metric(name)
        return f"({series} or {_THE_EVENT} {self.known(f'last_over_time({series}[1h])')})"

    def not_before(self) -> str:
        """Select NotBefore of events that have not started, also those of VMs that are down."""
        listed = self.listed("event_not_before_timestamp_seconds")
        return f"({listed} unless {_THE_EVENT} {self.recorded('vm_event_started')})"

    def period(self, series: str) -> str:
        """Keep of series about VMs and events those of the chosen places that were known in the period."""
        known = f"last_over_time({self.recorded('vm_event_state')}[$__range])"
        return series if self.one else f"{series} and {_THE_EVENT} {known}"


def grew(series: str, window: str = "$__range") -> str:
    """Return the increase of a counter, with one series for each of its series.

    `increase` alone does not count the first value of a series that appears within the window, as those
    of an event type that Azure has added do with the first event.
    """
    born = f"min_over_time({series}[{window}]) unless {series} offset {window}"
    increase = f"increase({series}[{window}])"
    return f"({increase} + ({born}) or {born} or {increase})"


def whole(series: str, by: str) -> str:
    """Return the increase of counters point by point: whole events, as `increase` extrapolates."""
    return f"sum by ({by}) (round(increase({series}[$__rate_interval])))"


def since_last(series: str, by: str) -> str:
    """Return the rise of counters since the point before.

    `whole` misses a rise if no scrape succeeds where the windows of two points overlap, as while the VM is
    paused.
    """
    now, before = (f"last_over_time({series}[1h]{offset})" for offset in ("", " offset $__interval"))
    # After a restart, all that is counted is new; the first value of a counter that just appeared is not.
    base = f"{before} <= {now} or 0 * {before} or min_over_time({series}[$__interval])"
    return f"sum by ({by}) ({now} - ({base}))"


def rises(series: str, by: str) -> str:
    """Return the increase of counters point by point, without those that did not increase in the period.

    A comparison with 0 would leave out points, and columns are drawn as wide as the gaps between points.
    """
    pointwise = whole(series, by)
    return f"{pointwise} and sum by ({by}) (increase({series}[$__range] @ end())) > 0"


def mean(scope: Scope, histogram: str, by: str) -> str:
    """Take the mean of what a histogram observed in the period; no series where it observed nothing."""
    total, count = (grew(scope.metric(f"{histogram}_{part}")) for part in ("sum", "count"))
    return f"sum by ({by}) ({total}) / (sum by ({by}) ({count}) > 0)"


def announced(scope: Scope) -> str:
    """Take the mean of the pauses that Azure announced in the period, for each VM and event one."""
    longest = f"max_over_time({scope.metric('event_duration_seconds')}[$__range])"
    return f"avg by (event_type) ({scope.period(longest)})"


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


def status(scope: Scope) -> str:
    """Return for each VM and event 2 for Started and 1 for any other status, also while the VM is down."""
    started, known = (f"{scope.recorded(name)} ^ 0" for name in ("vm_event_started", "vm_event"))
    return f"(2 * {started} or {known})"


def watch(scope: Scope) -> str:
    """Return for each VM and event whether the VM is watched, and so for VMs without events that are not."""
    vm = scope.recorded("vm")
    return f"(0 * {scope.recorded('vm_event')} + {_THE_VM} group_left () {vm} or {_THE_VM} {vm} < 1)"


def hit(scope: Scope, started: bool) -> str:
    """Select the VMs that an event is announced for, or that a started one hits, each once."""
    known, begun = scope.recorded("vm_event"), scope.recorded("vm_event_started")
    events = begun if started else f"({known} unless {begun})"
    return f"group by (job, cluster, namespace, instance, {_PLACE}) ({events})"


def gone(scope: Scope, outcome: str) -> str:
    """Select the events of the period that ended so on a VM, never started, and are not listed; each once."""
    ended = scope.recorded("vm_event_ended", f'transition="{outcome}"')
    now = "group by (event)"
    return (
        f"{now} (last_over_time({ended}[$__range]))"
        f" unless {now} (max_over_time({scope.recorded('vm_event_state')}[$__range]) == 2)"
        f" unless {now} ({scope.recorded('vm_event')})"
    )


def notice(scope: Scope) -> str:
    """Return for each VM and event of the period the time from when it was first seen to NotBefore."""
    due, seen = (
        f"min_over_time({scope.metric(f'event_{name}_timestamp_seconds')}[$__range])"
        for name in ("not_before", "first_seen")
    )
    return scope.period(f"clamp_min({due} - {seen}, 0)")


def until_gone(scope: Scope) -> str:
    """Return for each VM and event completed in the period the time from its start to its last scrape."""
    ended = scope.recorded("vm_event_ended", 'transition="completed"')
    started = scope.metric("event_started_timestamp_seconds")
    # A pod that was replaced has left a series of its own.
    begun = f"min by {_VM_EVENT} (last_over_time({started}[$__range]))"
    return f"(max_over_time({ended}[$__range]) - {_THE_EVENT} group_left () {begun})"


def number(vector: str, alive: str, by: str = "") -> str:
    """Count the series of a vector: 0 where it is empty, but nothing where no exporter is scraped at all."""
    return f"count {by} ({vector}) or 0 * count {by} ({alive})"
