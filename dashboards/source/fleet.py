"""The dashboard `Fleet`: what happens now, to which VMs, until when; and who is not watched."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.source import style
from dashboards.source.frame import FLEET, Frame, PanelBuilder, vm_link
from dashboards.source.panels import About, numbers, timeline
from dashboards.source.promql import (
    NOT_STARTED,
    STARTED,
    Scope,
    announced,
    notice,
    number,
    placed,
    status,
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
        "Azure Scheduled Events of all VMs: what happens now, to which VMs, until when; who is not watched.",
        _SCOPE,
    )
    frame.row(
        4, [(5, _hit(STARTED)), (5, _hit(NOT_STARTED)), (5, _next()), (4, _watched()), (5, _unwatched())]
    )
    frame.row(9, [(24, _now())])
    frame.row(7, [(9, _blind()), (15, _places())])
    frame.heading("In this period")
    frame.row(9, [(12, _timeline()), (12, _by_type())])
    return frame.build()


def _hit(matcher: str) -> PanelBuilder:
    begun = matcher == STARTED
    about = About(
        "VMs, Started" if begun else "VMs, Scheduled",
        "VMs for which an event is in progress, those that are down included."
        if begun
        else "VMs for which an event is announced.",
        _NO_EXPORTER,
    )
    query = Query(number(vms(_SCOPE.event(matcher)), _UP), shape=Shape.NOW)
    return numbers(about, [query], steps={1: style.ALARM if begun else style.NOTICE}, decimals=0)


def _next() -> PanelBuilder:
    about = About(
        "Next, at the earliest",
        "Time to the nearest NotBefore. An event may start then, or later; approved, or without any notice,"
        " also earlier. Negative once it has passed.",
        "nothing announced",
        "s",
    )
    left = f"min({_SCOPE.event(NOT_STARTED)} > 0) - time()"
    return numbers(about, [Query(left, shape=Shape.NOW)], steps=style.URGENT, decimals=0)


def _watched() -> PanelBuilder:
    about = About("VMs watched", "VMs whose exporter got a valid answer at its last poll.", _NO_EXPORTER)
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
        "Now",
        "One row for each event and VM that it hits; those that have started first, then by the time left."
        " The event of a VM that is down stays, as it may be the cause. Pause is what Azure expects; blank if"
        " it does not know. A click on the VM opens its own dashboard.",
        "nothing is announced or in progress",
    )
    return table_of(
        about,
        [
            Column("VM", "instance", link=vm_link("VM")),
            Column("Type", "event_type", width=120),
            Column("Phase", "phase", width=110, states=style.PHASES),
            Column(
                "Time left",
                "",
                f"max {by} ({_SCOPE.event(NOT_STARTED)} > 0) - time()",
                unit="s",
                width=120,
                decimals=0,
                steps=style.URGENT,
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
            Column("VM is", "", f"max {by} {watched(_SCOPE)}", width=100, states=style.WATCH),
            Column("Source", "event_source", width=100),
            Column("Event", "event_id", width=310),
        ],
        sort="Phase",
        descending=True,
        then="Time left",
    )


def _blind() -> PanelBuilder:
    about = About(
        "Who is not watched",
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
            Column("VM is", "", f"max by (instance) ({unwatched})", width=100, states=style.WATCH),
            Column("Last answer", "", age, "s", 120, decimals=0),
        ],
        sort="VM",
    )


def _places() -> PanelBuilder:
    by = "resource_group, scale_set, zone"
    about = About(
        "Where",
        "VMs by resource group, scale set and zone: all, those that an event is announced for or has hit, and"
        " those that take no new work because of one.",
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
            Column(
                "Scheduled",
                "",
                placed(_SCOPE, _SCOPE.event(NOT_STARTED), by),
                width=90,
                steps={1: style.NOTICE},
            ),
            Column(
                "Started", "", placed(_SCOPE, _SCOPE.event(STARTED), by), width=80, steps={1: style.ALARM}
            ),
            Column("Out of service", "", placed(_SCOPE, is_out, by), width=120, steps={1: style.NOTICE}),
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
    states = f"max by (instance, event_type) {status(_SCOPE)}"
    return timeline(about, [Query(states, "{{instance}} {{event_type}}")], style.words(style.STATES))


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
