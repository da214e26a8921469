"""The dashboard `Fleet`: what is pending where, and what this period's events were like."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.source import style
from dashboards.source.distributions import distribution
from dashboards.source.frame import FLEET, Frame, PanelBuilder, vm_link
from dashboards.source.panels import About, bars, columns, numbers, timeline
from dashboards.source.promql import Scope, announced, busy, gone, grew, mean, number, states
from dashboards.source.queries import Query, Shape
from dashboards.source.tables import Column, table_of

_SCOPE = Scope()
_NO_EXPORTER = "no exporter of this job is scraped"
_NO_EVENT = "no event in this period"


def fleet() -> Dashboard:
    """Build it."""
    frame = Frame(
        FLEET,
        "Azure Scheduled Events of all VMs: what is pending where, how long is left, and what became of it.",
        _SCOPE,
    )
    stats = [(4, _pending()), (4, _vms("Scheduled")), (4, _vms("Started")), (4, _next())]
    frame.row(4, [*stats, (4, _watched()), (4, _unwatched())])
    frame.row(8, [(24, _events())])
    frame.row(10, [(9, _hit()), (15, _timeline())])
    frame.heading("In this period")
    frame.row(4, [(6, _seen()), (6, _gone("cancelled")), (6, _gone("vanished")), (6, _approved())])
    frame.row(9, [(12, _by_type()), (12, _transitions())])
    frame.row(11, [(6, _notice()), (6, _impact()), (6, _pauses()), (6, _approvals())])
    return frame.build()


def _pending() -> PanelBuilder:
    listed = f"group by (event_id) ({_SCOPE.metric('event_info')})"
    about = About(
        "Events now",
        "Events that Azure lists now, Scheduled or Started. One that several VMs see counts once.",
        _NO_EXPORTER,
    )
    query = Query(number(listed, _SCOPE.metric("up")), shape=Shape.NOW)
    return numbers(about, [query], steps={1: style.NOTICE}, decimals=0)


def _vms(status: str) -> PanelBuilder:
    pending = _SCOPE.metric("pending", f'event_status="{status}"', 'target="self"')
    meaning = "will be hit: an event is announced for them" if status == "Scheduled" else "are being hit now"
    color = style.NOTICE if status == "Scheduled" else style.ALARM
    query = Query(
        f"count(sum without (event_type) ({pending}) > 0) or 0 * count({_SCOPE.metric('up')})",
        shape=Shape.NOW,
    )
    about = About(f"VMs, {status}", f"VMs that {meaning}.", _NO_EXPORTER)
    return numbers(about, [query], steps={1: color}, decimals=0)


def _next() -> PanelBuilder:
    left = f"min({_SCOPE.metric('event_not_before_timestamp_seconds')} - time())"
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
    query = Query(f"sum({_SCOPE.metric('up')})", shape=Shape.NOW)
    return numbers(about, [query], decimals=0)


def _unwatched() -> PanelBuilder:
    about = About(
        "Blind or down",
        "VMs whose exporter gets no answer from Azure, or cannot be scraped: nobody would be told of an event"
        " there. A VM that reboots is down for a while.",
        _NO_EXPORTER,
    )
    targets, seeing = _SCOPE.other("up"), _SCOPE.metric("up")
    query = Query(f"count({targets}) - (sum({seeing}) or 0 * count({targets}))", shape=Shape.NOW)
    return numbers(about, [query], steps={1: style.ALARM}, decimals=0)


def _events() -> PanelBuilder:
    info, by = _SCOPE.metric("event_info"), "by (event_id)"
    started = _SCOPE.metric("event_info", 'event_status="Started"')
    not_before = _SCOPE.metric("event_not_before_timestamp_seconds")
    begun = _SCOPE.metric("event_started_timestamp_seconds")
    labels = "by (event_id, event_type, event_source, description)"
    about = About(
        "Events",
        "One row for each event, however many VMs see it. It counts as Started as soon as one VM says so."
        " NotBefore is blank once an event has started; a duration that Azure does not know is blank too.",
        "nothing is announced or under way",
    )
    return table_of(
        about,
        [
            Column("Type", "event_type", width=100),
            Column("Status", "", f"max {labels} (2 * {started} or {info})", width=105, states=style.STATES),
            Column(
                "Time left",
                "",
                f"min {by} ({not_before} - time())",
                unit="s",
                width=110,
                decimals=0,
                steps={-1e9: style.ALARM, 300: style.NOTICE, 900: "yellow", 3600: style.CALM},
            ),
            Column("NotBefore", "", f"1000 * min {by} ({not_before})", unit="dateTimeAsIso", width=165),
            Column("Started for", "", f"time() - min {by} ({begun})", unit="s", width=110, decimals=0),
            Column("Announced pause", "", f"max {by} ({_SCOPE.metric('event_duration_seconds')})", "s", 140),
            Column("VMs hit", "", f"max {by} ({_SCOPE.metric('event_resources')})", "none", 80),
            Column("Source", "event_source", width=90),
            Column("Description", "description"),
            Column("Event", "event_id", width=310),
        ],
        sort="Status",
        then="Time left",
    )


def _hit() -> PanelBuilder:
    mine, by = 'target="self"', "by (instance, event_type, event_id)"
    info = _SCOPE.metric("event_info", mine)
    started = _SCOPE.metric("event_info", mine, 'event_status="Started"')
    left = f"{_SCOPE.metric('event_not_before_timestamp_seconds')} - time()"
    about = About(
        "VMs with events now",
        "One row for each VM and event that hits it. A click on the VM opens its own dashboard.",
        "no VM is hit, or going to be",
    )
    return table_of(
        about,
        [
            Column("VM", "instance", link=vm_link("VM")),
            Column("Event", "event_id", hidden=True),
            Column("Type", "event_type", width=100),
            Column("Status", "", f"max {by} (2 * {started} or {info})", width=105, states=style.STATES),
            Column("Time left", "", f"min {by} ({left})", unit="s", width=110, decimals=0),
        ],
        sort="VM",
    )


def _timeline() -> PanelBuilder:
    about = About(
        "VMs over time",
        "A row for each VM and type of event that hit it in this period; VMs without any are left out. A hole"
        ' is a time in which the exporter was not scraped, as while the VM rebooted. "Not known" is a time'
        " in which Azure did not answer.",
        "no VM was hit in this period",
        "none",
    )
    query = Query(f"({states(_SCOPE)}) and ({busy(_SCOPE)})", "{{instance}} {{event_type}}")
    return timeline(about, [query], style.words(style.STATES))


def _seen() -> PanelBuilder:
    seen = f"group by (event_id) (last_over_time({_SCOPE.metric('event_info')}[$__range]))"
    about = About(
        "Events in this period",
        "Events of this period, each once. One that came and went between two scrapes is not among them.",
        _NO_EXPORTER,
    )
    return numbers(about, [Query(number(seen, _SCOPE.metric("up")), shape=Shape.NOW)], decimals=0)


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
    query = Query(number(gone(_SCOPE, outcome), _SCOPE.metric("up")), shape=Shape.NOW)
    return numbers(about, [query], decimals=0, steps={1: style.OUTCOMES[outcome]}, below=style.NOTHING)


def _approved() -> PanelBuilder:
    about = About(
        "Approved",
        "Approvals that exporters gave by their rules. One VM approves for all VMs of an event; with leader:"
        " any in the configuration, several may.",
        "no approval rules are configured",
    )
    approved = _SCOPE.metric("approvals_total", 'outcome="approved"')
    return numbers(about, [Query(f"round(sum({grew(approved)}))", shape=Shape.NOW)], decimals=0)


def _by_type() -> PanelBuilder:
    started = grew(_SCOPE.metric("transitions_total", 'transition="started"'))
    pauses = grew(_SCOPE.metric("observed_pause_seconds_count"))
    about = About(
        "What each type has meant",
        "Hits: how often a VM was hit. Times are means over VMs. Notice: NotBefore minus first seen."
        " Announced: the pause that Azure expected. Observed: a pause that the VM itself noticed, of which"
        " there were as many as Pauses says; not every one can be noticed from within, and a hit may bring"
        " several. Until gone: from Started until Azure took the event off its list, mostly far longer than"
        " the pause itself.",
        _NO_EXPORTER,
    )
    return table_of(
        about,
        [
            Column("Type", "event_type"),
            Column("Hits", "", f"round(sum by (event_type) ({started}))", "none", decimals=0),
            Column("Notice", "", mean(_SCOPE, "notice_seconds", "event_type"), "s", decimals=1),
            Column("Announced", "", announced(_SCOPE), "s", decimals=1),
            Column("Observed", "", mean(_SCOPE, "observed_pause_seconds", "event_type"), "s", decimals=1),
            Column("Pauses", "", f"round(sum by (event_type) ({pauses}))", "none", decimals=0),
            Column("Until gone", "", mean(_SCOPE, "impact_seconds", "event_type"), "s", decimals=1),
        ],
        sort="Type",
    )


def _transitions() -> PanelBuilder:
    counted = _SCOPE.metric("transitions_total")
    about = About(
        "What happened",
        "Transitions that exporters counted: an event that hits twenty VMs is twenty here. The points are"
        " exemplars; each leads to the trace of its event, where the datasource is told how.",
        _NO_EXPORTER,
    )
    increase = f"sum by (transition) (increase({counted}[$__rate_interval]))"
    return columns(about, [Query(increase, "{{transition}}", Shape.EXEMPLARS)])


def _notice() -> PanelBuilder:
    about = About(
        "Notice",
        "How long before NotBefore events were first seen, once for each VM and event. Choose a type above to"
        " see how much notice it really gives.",
        _NO_EVENT,
        "none",
    )
    return distribution(about, _SCOPE, "notice_seconds")


def _impact() -> PanelBuilder:
    about = About(
        "From Started to gone",
        "How long events stayed Started, once for each VM and event; those whose end was not watched are left"
        " out. The pause itself is mostly far shorter.",
        "no event ended in this period",
        "none",
    )
    return distribution(about, _SCOPE, "impact_seconds")


def _pauses() -> PanelBuilder:
    about = About(
        "Observed pauses",
        "How long VMs stood still while an event was Started for them, as their exporters noticed it. A pause"
        " that stops the VM's clocks too cannot be noticed, nor one under a fifth of a second.",
        "no pause was noticed in this period",
        "none",
    )
    return distribution(about, _SCOPE, "observed_pause_seconds")


def _approvals() -> PanelBuilder:
    about = About(
        "Approvals by rule",
        "What approval rules did: approved; would have approved (dry_run); tries that failed; or held back by"
        " the limit per hour (limited).",
        "no rule approved anything in this period, or none is configured",
        "none",
    )
    grown = grew(_SCOPE.metric("approvals_total"))
    query = Query(f"sum by (rule, outcome) ({grown}) > 0", "{{rule}}, {{outcome}}", Shape.NOW)
    return bars(about, [query])
