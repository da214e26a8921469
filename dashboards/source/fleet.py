"""The dashboard `Fleet`: what happens now, to which VMs, until when; and which VMs are not watched."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.source import style
from dashboards.source.frame import FLEET, Frame, PanelBuilder, vm_link
from dashboards.source.panels import About, numbers, timeline
from dashboards.source.promql import (
    CRITICAL,
    NOT_STARTED,
    STARTED,
    Scope,
    announced,
    graded,
    notice,
    number,
    placed,
    vms,
    watch,
    watched,
)
from dashboards.source.queries import Query, Shape
from dashboards.source.tables import Column, table_of

_SCOPE = Scope()
_UP = _SCOPE.other("up")
_NO_EXPORTER = "no exporter of this job is scraped"


def fleet() -> Dashboard:
    """Build it."""
    frame = Frame(
        FLEET,
        "Azure Scheduled Events of all VMs: what happens now, to which VMs, until when; VMs not watched.",
        _SCOPE,
    )
    frame.row(
        4,
        [
            (4, _critical()),
            (4, _hit(STARTED)),
            (4, _hit(NOT_STARTED)),
            (4, _next()),
            (4, _watched()),
            (4, _unwatched()),
        ],
    )
    frame.row(9, [(24, _now())])
    frame.row(7, [(9, _blind()), (15, _places())])
    frame.heading("Time range")
    frame.row(9, [(12, _timeline()), (12, _by_type())])
    return frame.build()


def _critical() -> PanelBuilder:
    about = About(
        "Critical",
        "VMs with an event of severity critical: a Preempt or a Terminate, or another one that has started,"
        " Freezes apart.",
        _NO_EXPORTER,
    )
    query = Query(number(vms(_SCOPE.event(CRITICAL)), _UP), shape=Shape.NOW)
    return numbers(about, [query], steps={1: style.ALARM}, decimals=0)


def _hit(matcher: str) -> PanelBuilder:
    begun = matcher == STARTED
    about = About(
        "Started" if begun else "Scheduled",
        "VMs for which an event is in progress, those that are down included."
        if begun
        else "VMs for which an event is announced.",
        _NO_EXPORTER,
    )
    query = Query(number(vms(_SCOPE.event(matcher)), _UP), shape=Shape.NOW)
    return numbers(about, [query], steps={1: style.PLAIN}, decimals=0)


def _next() -> PanelBuilder:
    about = About(
        "Time to next event",
        "Time to the nearest NotBefore. An event may start then, or later; approved, or without any notice,"
        " also earlier. Negative once it has passed.",
        "nothing announced",
        "s",
    )
    left = f"min({_SCOPE.event(NOT_STARTED)} > 0) - time()"
    return numbers(about, [Query(left, shape=Shape.NOW)], decimals=0)


def _watched() -> PanelBuilder:
    about = About("Watched", "VMs whose exporter got a valid answer at its last poll.", _NO_EXPORTER)
    query = Query(f"sum({watch(_SCOPE)} == bool 1)", shape=Shape.NOW)
    return numbers(about, [query], decimals=0)


def _unwatched() -> PanelBuilder:
    about = About(
        "Not watched",
        "VMs whose exporter cannot be scraped (down), or gets no answer from Azure (blind): nobody would be"
        " told of an event there. A VM that reboots is down for a while.",
        _NO_EXPORTER,
    )
    query = Query(f"sum({watch(_SCOPE)} < bool 1)", shape=Shape.NOW)
    return numbers(about, [query], steps={1: style.ALARM}, decimals=0)


def _now() -> PanelBuilder:
    by = "by (instance, event_type, phase, event_source, event_id)"
    pause = _SCOPE.metric("event_duration_seconds")
    about = About(
        "Current events",
        "One row for each event and VM that it affects; the most severe first, then by the time left."
        " The event of a VM that is down stays, as it may be the cause. Pause is what Azure expects; blank if"
        " it does not know. A click on the VM opens its own dashboard.",
        "nothing is announced or in progress",
    )
    return table_of(
        about,
        [
            Column("VM", "instance", link=vm_link("VM")),
            Column("Type", "event_type", width=120),
            Column("Severity", "", f"max {by} {graded(_SCOPE)}", width=100, states=style.SEVERITIES),
            Column("Phase", "phase", width=110),
            Column(
                "Time left", "", f"max {by} ({_SCOPE.event(NOT_STARTED)} > 0) - time()", "s", 120, decimals=0
            ),
            Column(
                "In progress for",
                "",
                f"time() - max {by} ({_SCOPE.event(STARTED)} > 0)",
                "s",
                130,
                decimals=0,
            ),
            Column(
                "NotBefore, or start", "", f"1000 * max {by} ({_SCOPE.event()} > 0)", "dateTimeAsIso", 170
            ),
            Column("Pause", "", f"max by (instance, event_id) ({pause})", "s", 90),
            Column("Watch", "", f"max {by} {watched(_SCOPE)}", width=100, states=style.WATCH),
            Column("Source", "event_source", width=100),
            Column("Event", "event_id", width=310),
        ],
        sort="Severity",
        descending=True,
        then="Time left",
    )


def _blind() -> PanelBuilder:
    about = About(
        "VMs not watched",
        "VMs that are down or blind, and how long ago Azure last answered there, for an hour.",
        "all VMs are watched",
    )
    unwatched = f"{watch(_SCOPE)} < 1"
    success = f"last_over_time({_SCOPE.metric('last_success_timestamp_seconds')}[1h])"
    age = f"time() - max by (instance) ({success} and on (job, cluster, instance) {unwatched})"
    return table_of(
        about,
        [
            Column("VM", "instance", link=vm_link("VM")),
            Column("Watch", "", f"max by (instance) ({unwatched})", width=100, states=style.WATCH),
            Column("Last success", "", age, "s", 120, decimals=0),
        ],
        sort="VM",
    )


def _places() -> PanelBuilder:
    by = "resource_group, scale_set, zone"
    about = About(
        "By scale set",
        "VMs by resource group, scale set and zone: all, those with an event that is announced, has started,"
        " or is critical, and those that take no new work because of one.",
        _NO_EXPORTER,
        "none",
    )
    is_out = f"{_SCOPE.metric('in_service')} == 0"
    return table_of(
        about,
        [
            Column("Resource group", "resource_group", width=150),
            Column("Scale set", "scale_set"),
            Column("Zone", "zone", width=60),
            Column("VMs", "", placed(_SCOPE, by=by), width=70),
            *(
                Column(title, "", placed(_SCOPE, _SCOPE.event(matcher), by), width=85, steps={1: color})
                for title, matcher, color in (
                    ("Scheduled", NOT_STARTED, style.PLAIN),
                    ("Started", STARTED, style.PLAIN),
                    ("Critical", CRITICAL, style.ALARM),
                )
            ),
            Column("Out of service", "", placed(_SCOPE, is_out, by), width=120, steps={1: style.NOTICE}),
        ],
        sort="Scale set",
    )


def _timeline() -> PanelBuilder:
    about = About(
        "Events over time",
        "A row for each VM and type of event, by severity; VMs without any are left out. An event stays while"
        " its VM is down.",
        "no VM was hit in this period",
        "none",
    )
    severity = f"max by (instance, event_type) {graded(_SCOPE)}"
    return timeline(about, [Query(severity, "{{instance}} {{event_type}}")], style.words(style.SEVERITIES))


def _by_type() -> PanelBuilder:
    by, each = "by (event_type)", "by (event_id, event_type)"
    seen, hits = (f"last_over_time({series}[$__range])" for series in (_SCOPE.event(), _SCOPE.event(STARTED)))
    about = About(
        "Impact by event type",
        "Events, each once however many VMs it hit; how often a VM was hit; the shortest and the mean"
        " notice, from when an event was first seen to its NotBefore; and the mean of the expected pauses.",
        "no event in this period",
    )
    return table_of(
        about,
        [
            Column("Type", "event_type"),
            Column("Events", "", f"count {by} (count {each} ({seen}))", "none", decimals=0),
            Column(
                "VMs hit",
                "",
                f"count {by} (count by (instance, event_id, event_type) ({hits}))",
                "none",
                decimals=0,
            ),
            Column("Shortest notice", "", f"min {by} ({notice(_SCOPE)})", "s", decimals=1),
            Column("Mean notice", "", f"avg {by} ({notice(_SCOPE)})", "s", decimals=1),
            Column("Expected pause", "", announced(_SCOPE), "s", decimals=1),
        ],
        sort="Type",
    )
