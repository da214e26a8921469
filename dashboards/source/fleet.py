"""The dashboard `Fleet`: what is pending where, and what this period's events were like."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.source import style
from dashboards.source.frame import FLEET, Frame, PanelBuilder, vm_link
from dashboards.source.panels import About, columns, numbers, timeline
from dashboards.source.promql import (
    PLACES,
    Scope,
    announced,
    gone,
    grew,
    hit,
    notice,
    number,
    status,
    until_gone,
    watch,
)
from dashboards.source.queries import Query, Shape
from dashboards.source.tables import Column, table_of

_SCOPE = Scope()
_NO_EXPORTER = "no exporter of this job is scraped"
_VM = _SCOPE.recorded("vm")


def fleet() -> Dashboard:
    """Build it."""
    frame = Frame(
        FLEET,
        "Azure Scheduled Events of all VMs: what is pending where, the time left, and how events ended.",
        _SCOPE,
    )
    stats = [(4, _pending()), (4, _vms("Scheduled")), (4, _vms("Started")), (4, _next())]
    frame.row(4, [*stats, (4, _watched()), (4, _unwatched())])
    frame.row(8, [(24, _events())])
    frame.row(10, [(12, _hit()), (12, _places())])
    frame.heading("In this period")
    frame.row(4, [(6, _seen()), (6, _gone("cancelled")), (6, _gone("vanished")), (6, _approved())])
    frame.row(10, [(10, _timeline()), (14, _transitions())])
    frame.row(8, [(24, _by_type())])
    return frame.build()


def _pending() -> PanelBuilder:
    listed = f"group by (event) ({_SCOPE.recorded('vm_event')})"
    about = About(
        "Events now",
        "Events that Azure lists now, Scheduled or Started. One that several VMs see counts once; one whose"
        " VM is down stays for up to an hour.",
        _NO_EXPORTER,
    )
    query = Query(number(listed, _SCOPE.any), shape=Shape.NOW)
    return numbers(about, [query], steps={1: style.NOTICE}, decimals=0)


def _vms(status: str) -> PanelBuilder:
    is_started = status == "Started"
    meaning = (
        "are being hit now, those that are down included"
        if is_started
        else "will be hit: an event is announced for them"
    )
    query = Query(number(hit(_SCOPE, is_started), _SCOPE.any), shape=Shape.NOW)
    about = About(f"VMs, {status}", f"VMs that {meaning}.", _NO_EXPORTER)
    return numbers(about, [query], steps={1: style.ALARM if is_started else style.NOTICE}, decimals=0)


def _next() -> PanelBuilder:
    left = f"min({_SCOPE.not_before()}) - time()"
    about = About(
        "Next, at the earliest",
        "Time to the nearest NotBefore. An event may start then, or later; approved, or without any notice,"
        " also earlier. Negative once it has passed.",
        "nothing announced",
        "s",
    )
    steps = {-1e9: style.ALARM, 300: style.NOTICE, 900: "yellow", 3600: style.CALM}
    return numbers(about, [Query(f"{left}", shape=Shape.NOW)], steps=steps, decimals=0)


def _watched() -> PanelBuilder:
    about = About("VMs watched", "VMs whose exporter got a valid answer at its last poll.", _NO_EXPORTER)
    return numbers(about, [Query(f"sum({_VM} == bool 1)", shape=Shape.NOW)], decimals=0)


def _unwatched() -> PanelBuilder:
    about = About(
        "Blind or down",
        "VMs whose exporter gets no answer from Azure, or cannot be scraped: nobody would be told of an event"
        " there. A VM that reboots is down for a while.",
        _NO_EXPORTER,
    )
    query = Query(f"sum({_VM} < bool 1)", shape=Shape.NOW)
    return numbers(about, [query], steps={1: style.ALARM}, decimals=0)


def _events() -> PanelBuilder:
    by, event = "by (event_id)", "by (event_id, event_type, event_source)"
    not_before = _SCOPE.not_before()
    begun, pause = (
        _SCOPE.listed(f"event_{name}") for name in ("started_timestamp_seconds", "duration_seconds")
    )
    about = About(
        "Events",
        "One row for each event, however many VMs see it. It counts as Started as soon as one VM says so, or"
        " is down after NotBefore. NotBefore is blank once an event has started; a duration that Azure does"
        " not know is blank too.",
        "nothing is announced or under way",
    )
    return table_of(
        about,
        [
            Column("Type", "event_type", width=100),
            Column("Status", "", f"max {event} {status(_SCOPE)}", width=105, states=style.STATES),
            Column(
                "Time left",
                "",
                f"min {by} ({not_before}) - time()",
                unit="s",
                width=110,
                decimals=0,
                steps={-1e9: style.ALARM, 300: style.NOTICE, 900: "yellow", 3600: style.CALM},
            ),
            Column("NotBefore", "", f"1000 * min {by} ({not_before})", unit="dateTimeAsIso", width=165),
            Column("Started for", "", f"time() - min {by} ({begun})", unit="s", width=110, decimals=0),
            Column("Announced pause", "", f"max {by} ({pause})", "s", 140),
            Column("VMs hit", "", f"max {by} ({_SCOPE.listed('event_resources')})", "none", 80),
            Column("Source", "event_source", width=90),
            Column("Description", "description"),
            Column("Event", "event_id", width=310),
            Column(
                "Text", "", f"max by (event_id, description) ({_SCOPE.listed('event_info')})", hidden=True
            ),
        ],
        sort="Status",
        then="Time left",
    )


def _hit() -> PanelBuilder:
    by = "by (instance, scale_set, zone, event_type, event_id)"
    placed = (
        f"0 * {_SCOPE.recorded('vm_event')} + on (job, cluster, namespace, instance, event_id) group_left ()"
    )
    not_before = f"{placed} {_SCOPE.not_before()}"
    about = About(
        "VMs with events, and VMs that nobody watches",
        "One row for each VM and event that hits it, and for each VM whose exporter cannot be scraped (down)"
        " or gets no answer from Azure (blind); those first. A click on the VM opens its own dashboard.",
        "all VMs are watched, and none is hit or going to be",
    )
    return table_of(
        about,
        [
            Column("VM", "instance", link=vm_link("VM")),
            Column("Watch", "", f"max {by} {watch(_SCOPE)}", width=90, states=style.WATCH),
            Column("Scale set", "scale_set"),
            Column("Zone", "zone", width=60),
            Column("Event", "event_id", hidden=True),
            Column("Type", "event_type", width=90),
            Column("Status", "", f"max {by} {status(_SCOPE)}", width=100, states=style.STATES),
            Column("Time left", "", f"min {by} ({not_before}) - time()", unit="s", width=90, decimals=0),
        ],
        sort="Watch",
        then="VM",
    )


def _places() -> PanelBuilder:
    by = f"by ({', '.join(PLACES)})"
    out = f"{_VM} and on (job, cluster, namespace, instance) {_SCOPE.metric('in_service')} == 0"
    about = About(
        "Where",
        "VMs by resource group, scale set and zone: all, those that are blind or down, those that an event is"
        " announced for or under way, and those that take no new work because of one.",
        _NO_EXPORTER,
        "none",
    )
    return table_of(
        about,
        [
            Column("Resource group", "resource_group", width=130),
            Column("Scale set", "scale_set"),
            Column("Zone", "zone", width=55),
            Column("VMs", "", f"count {by} ({_VM})", width=60),
            Column("Unwatched", "", f"sum {by} ({_VM} < bool 1)", width=90, steps={1: style.ALARM}),
            Column("Scheduled", "", number(hit(_SCOPE, False), _VM, by), width=85, steps={1: style.NOTICE}),
            Column("Started", "", number(hit(_SCOPE, True), _VM, by), width=75, steps={1: style.ALARM}),
            Column("Out of service", "", number(out, _VM, by), width=110, steps={1: style.NOTICE}),
        ],
        sort="Scale set",
    )


def _timeline() -> PanelBuilder:
    about = About(
        "VMs over time",
        "A row for each VM and type of event that hit it in this period; VMs without any are left out. An"
        " event stays while its VM is down.",
        "no VM was hit in this period",
        "none",
    )
    states = f"max by (instance, event_type) ({_SCOPE.recorded('vm_event_state')})"
    return timeline(about, [Query(states, "{{instance}} {{event_type}}")], style.words(style.STATES))


def _seen() -> PanelBuilder:
    seen = f"group by (event) (last_over_time({_SCOPE.recorded('vm_event_state')}[$__range]))"
    about = About(
        "Events in this period",
        "Events of this period, each once. One that came and went between two scrapes is not among them.",
        _NO_EXPORTER,
    )
    return numbers(about, [Query(number(seen, _SCOPE.any), shape=Shape.NOW)], decimals=0)


def _gone(outcome: str) -> PanelBuilder:
    about = About(
        outcome.capitalize(),
        {
            "cancelled": "Events that Azure took back before they started, each once.",
            "vanished": "Events that went while nobody watched, as while exporters were down or blind: what"
            " became of them is not known. Each counts once, unless another VM saw it start.",
        }[outcome],
        _NO_EXPORTER,
    )
    query = Query(number(gone(_SCOPE, outcome), _SCOPE.any), shape=Shape.NOW)
    return numbers(about, [query], decimals=0, steps={1: style.OUTCOMES[outcome]}, below=style.NOTHING)


def _approved() -> PanelBuilder:
    about = About(
        "Approved",
        "Approvals that exporters gave by their rules. One VM approves for all VMs of an event; with leader:"
        " any in the configuration, several may.",
        _NO_EXPORTER,
    )
    counted = _SCOPE.recorded("vm_transitions:increase", 'transition="approved"')
    approved = f"sum(sum_over_time({counted}[$__range])) or 0 * count({_SCOPE.any})"
    return numbers(about, [Query(approved, shape=Shape.NOW)], decimals=0)


def _by_type() -> PanelBuilder:
    by, half = "by (event_type)", "quantile by (event_type) (0.5,"
    hits = f"count {by} (max_over_time({_SCOPE.recorded('vm_event_state')}[$__range]) == 2)"
    pauses, seconds = (
        f"sum {by} ({_SCOPE.here(grew(_SCOPE.recorded(name)))})" for name in ("vm_pauses", "vm_pause_seconds")
    )
    about = About(
        "What each type has meant",
        "Hits: how often a VM was hit. Notice: NotBefore minus first seen, the shortest and that of the one"
        " in the middle. Announced: the pause that Azure expected, as a mean. Observed: the mean of the"
        " pauses that VMs noticed, of which there were as many as Pauses says; not every one can be noticed"
        " from within, and a hit may bring several. Until gone: from Started until Azure took the event off"
        " its list, to within a scrape; mostly far longer than the pause itself.",
        "no event in this period",
    )
    gone_after = until_gone(_SCOPE)
    return table_of(
        about,
        [
            Column("Type", "event_type"),
            Column("Hits", "", hits, "none", decimals=0),
            Column("Shortest notice", "", f"min {by} ({notice(_SCOPE)})", "s", decimals=1),
            Column("Median notice", "", f"{half} {notice(_SCOPE)})", "s", decimals=1),
            Column("Announced", "", announced(_SCOPE), "s", decimals=1),
            Column("Observed", "", f"{seconds} / ({pauses} > 0)", "s", decimals=1),
            Column("Pauses", "", f"round({pauses})", "none", decimals=0),
            Column("Median until gone", "", f"{half} {gone_after})", "s", decimals=1),
            Column("Longest until gone", "", f"max {by} ({gone_after})", "s", decimals=1),
        ],
        sort="Type",
    )


def _transitions() -> PanelBuilder:
    about = About(
        "What happened",
        "Transitions that exporters counted: an event that hits twenty VMs is twenty here. The dashboard"
        " Instance leads from each to its trace.",
        "nothing happened in this period",
    )
    counted, by = _SCOPE.recorded("vm_transitions:increase"), "by (transition)"
    happened = f"sum {by} (sum_over_time({counted}[$__interval]))"
    # Columns are drawn as wide as the gaps between points, so there have to be points where nothing happened.
    zeros = f"0 * group {by} (last_over_time({counted}[$__range] @ end()))"
    return columns(about, [Query(f"{happened} or {zeros}", "{{transition}}")])
