"""The dashboard `Instance`: one VM's life."""

from grafana_foundation_sdk.builders.common import ScaleDistributionConfig
from grafana_foundation_sdk.models.common import ScaleDistribution, VisibilityMode
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.source import style
from dashboards.source.frame import INSTANCE, Frame, PanelBuilder
from dashboards.source.panels import About, columns, lines, numbers, timeline
from dashboards.source.promql import (
    NOT_STARTED,
    Scope,
    announced,
    graded,
    mean,
    quantile,
    rises,
    status,
    watch,
    whole,
)
from dashboards.source.queries import Query, Shape
from dashboards.source.tables import Column, table_of

_SCOPE = Scope(one=True)
_STATUSES = {1: ("Scheduled", style.NOTHING), 2: ("Started", style.NOTHING)}
_NO_EXPORTER = "the exporter of this VM is not scraped"


def instance() -> Dashboard:
    """Build it."""
    frame = Frame(
        INSTANCE,
        "Azure Scheduled Events of one VM: what is coming, what it went through, and who was told.",
        _SCOPE,
    )
    frame.row(4, [(5, _state()), (5, _left()), (5, _announced()), (5, _age()), (4, _waiting())])
    frame.row(6, [(24, _events())])
    frame.row(8, [(14, _timeline()), (10, _countdown())])
    frame.row(8, [(13, _pauses()), (5, _unannounced()), (6, _transitions())])
    frame.heading("Notifications, hooks and approvals")
    frame.row(8, [(12, _notifications()), (12, _delay())])
    frame.row(7, [(8, _hooks()), (8, _hook_duration()), (8, _approvals())])
    return frame.build()


def _state() -> PanelBuilder:
    about = About(
        "State",
        "The highest severity of the events of this VM, also while one has it down; not known where Azure"
        " does not answer.",
        _NO_EXPORTER,
        "none",
    )
    query = Query(f"max{graded(_SCOPE)} or max{watch(_SCOPE)} - 1", shape=Shape.NOW)
    steps: dict[float, str] = {0: style.CALM}
    steps |= {level: color for level, (_, color) in style.SEVERITIES.items()}
    return numbers(
        about,
        [query],
        steps=steps,
        below=style.UNKNOWN,
        mappings=style.words(style.STATES | {0: ("no event", style.CALM)}),
    )


def _left() -> PanelBuilder:
    about = About(
        "Time to next event",
        "Time to the nearest NotBefore; negative once it has passed. An approved event may start earlier.",
        "nothing announced",
        "s",
    )
    left = f"min({_SCOPE.event(NOT_STARTED)} > 0) - time()"
    return numbers(about, [Query(left, shape=Shape.NOW)], decimals=0)


def _announced() -> PanelBuilder:
    about = About(
        "Announced pause",
        "The longest interruption that Azure expects of the events now listed.",
        "nothing announced, or its length is not known",
        "s",
    )
    return numbers(about, [Query(f"max({_SCOPE.metric('event_duration_seconds')})", shape=Shape.NOW)])


def _age() -> PanelBuilder:
    about = About(
        "Last successful poll",
        "Age of the last valid answer at the last scrape or since. It is polled once a second; minutes"
        " without answer mean that nobody would be told of an event.",
        "no valid answer since the exporter started, or it is not scraped",
        "s",
    )
    age = f"time() - max({_SCOPE.metric('last_success_timestamp_seconds')})"
    return numbers(
        about, [Query(age, shape=Shape.NOW)], steps={120: style.NOTICE, 300: style.ALARM}, decimals=0
    )


def _waiting() -> PanelBuilder:
    about = About("Notifications pending", "Messages that have not reached their targets yet.", "no targets")
    query = Query(f"sum({_SCOPE.metric('notifications_pending')})", shape=Shape.NOW)
    return numbers(about, [query], steps={1: style.NOTICE}, decimals=0)


def _events() -> PanelBuilder:
    by, event = "by (event_id)", "by (event_id, event_type, event_source)"
    others = _SCOPE.metric("event_info", 'target="other"')
    begun_there = _SCOPE.metric("event_info", 'target="other"', 'event_status="Started"')
    state = f"{status(_SCOPE)} or 2 * {begun_there} or {others}"
    listed, begun, pause = (
        _SCOPE.metric(f"event_{name}")
        for name in ("not_before_timestamp_seconds", "started_timestamp_seconds", "duration_seconds")
    )
    # That of a VM that is down is recorded.
    not_before = f"({listed} or on (event_id) {_SCOPE.event(NOT_STARTED)} > 0)"
    text = f"max by (event_id, target, description) ({_SCOPE.metric('event_info')})"
    about = About(
        "Events",
        "What Azure lists for this VM; with metrics.events: all in the exporter's configuration, also what"
        " hits its neighbours only (other).",
        "nothing is announced or under way",
    )
    return table_of(
        about,
        [
            Column("Type", "event_type", width=100),
            Column("Severity", "", f"max {event} {graded(_SCOPE)}", width=100, states=style.SEVERITIES),
            Column("Status", "", f"max {event} ({state})", width=105, states=_STATUSES),
            Column("Hits", "target", width=70),
            Column("Time left", "", f"min {by} ({not_before} - time())", "s", 100, decimals=0),
            Column("NotBefore", "", f"1000 * min {by} ({not_before})", "dateTimeAsIso", 165),
            Column("Started", "", f"1000 * min {by} ({begun})", "dateTimeAsIso", 165),
            Column("Announced pause", "", f"max {by} ({pause})", "s", 140),
            Column("Source", "event_source", width=85),
            Column("Description", "description"),
            Column("Event", "event_id", width=310),
            Column("Text", "", text, hidden=True),
        ],
        sort="Severity",
        descending=True,
        then="Time left",
    )


def _timeline() -> PanelBuilder:
    about = About(
        "Events over time",
        "A row for each type of event, by severity, and what Azure's answers were like. A hole is a time in"
        " which the exporter was not scraped, as while the VM rebooted.",
        _NO_EXPORTER,
        "none",
    )
    # Answers are put where no severity is, so that one row of words can name both.
    answers = f"max by (instance) ({_SCOPE.metric('up')}) + 10"
    meanings = style.STATES | {10: ("no answer", style.UNKNOWN), 11: ("answers", style.CALM)}
    none = f"0 * max by (event_type) ({_SCOPE.metric('pending')})"
    events = f"max by (event_type) {graded(_SCOPE)} or {none}"
    return timeline(about, [Query(events, "{{event_type}}"), Query(answers, "Azure")], style.words(meanings))


def _countdown() -> PanelBuilder:
    about = About(
        "Time to NotBefore",
        "How much time was left, event by event. A line that ends above zero started early, as when approved,"
        " or was cancelled; one that jumps was moved by Azure.",
        "nothing was announced in this period",
        "s",
    )
    left = _SCOPE.metric("event_seconds_to_not_before")
    # A whole id would leave no room for the lines.
    short = f'label_replace({left}, "id", "$1", "event_id", "(.{{0,8}}).*")'
    query = Query(f"max by (event_type, event_id, id) ({short})", "{{event_type}} {{id}}")
    panel = lines(about, [query], minimum=None)
    # Notice is of seconds or of days: on a linear scale, only days would be seen.
    scale = ScaleDistributionConfig().type(ScaleDistribution.SYMLOG).log(10).linear_threshold(10)
    return panel.scale_distribution(scale)


def _pauses() -> PanelBuilder:
    about = About(
        "Announced and observed pauses",
        "Means over this period. Announced: the pause that Azure expected. Observed: how long the VM really"
        " stood still, as the exporter noticed it, so many times as Pauses says; not every pause can be"
        " noticed from within, and an event may bring several. Until gone: from Started until Azure took the"
        " event off its list.",
        _NO_EXPORTER,
    )
    pauses = f"increase({_SCOPE.metric('observed_pause_seconds_count')}[$__range])"
    started = f"""increase({_SCOPE.metric("transitions_total", 'transition="started"')}[$__range])"""
    return table_of(
        about,
        [
            Column("Type", "event_type"),
            Column("Started", "", f"round(sum by (event_type) ({started}))", "none", decimals=0),
            Column("Notice", "", mean(_SCOPE, "notice_seconds", "event_type"), "s", decimals=1),
            Column("Announced", "", announced(_SCOPE), "s", decimals=1),
            Column("Observed", "", mean(_SCOPE, "observed_pause_seconds", "event_type"), "s", decimals=1),
            Column("Pauses", "", f"round(sum by (event_type) ({pauses}))", "none", decimals=0),
            Column("Until gone", "", mean(_SCOPE, "impact_seconds", "event_type"), "s", decimals=1),
        ],
        sort="Type",
    )


def _unannounced() -> PanelBuilder:
    counted = _SCOPE.metric("unannounced_pauses_total")
    about = About(
        "Unannounced pauses",
        "How often the VM stood still for a second or more while no event was under way. The log of its"
        " exporter has the durations.",
        _NO_EXPORTER,
    )
    return columns(about, [Query(whole(counted, "instance"), "pauses")])


def _transitions() -> PanelBuilder:
    counted = _SCOPE.metric("transitions_total")
    about = About(
        "Transitions",
        "Transitions of this VM's events. The points are exemplars; each leads to the trace of its event,"
        " where the datasource is told how.",
        _NO_EXPORTER,
    )
    return columns(about, [Query(whole(counted, "transition"), "{{transition}}", Shape.EXEMPLARS)])


def _notifications() -> PanelBuilder:
    counted = _SCOPE.metric("notifications_total")
    about = About(
        "Notifications",
        "By target and outcome. A failed attempt is repeated; expired and refused messages are lost.",
        "no notification targets are configured",
    )
    return columns(about, [Query(whole(counted, "target, outcome"), "{{target}}, {{outcome}}")])


def _delay() -> PanelBuilder:
    buckets = _SCOPE.metric("notification_delay_seconds_bucket")
    about = About(
        "Notification delay",
        "How late messages arrived; nothing is drawn where none was sent.",
        "no message was delivered in this period",
        "s",
    )
    queries = [Query(quantile(0.5, buckets), "p50"), Query(quantile(0.95, buckets), "p95")]
    panel = lines(about, queries)
    return panel.span_nulls(False).show_points(VisibilityMode.ALWAYS)


def _hooks() -> PanelBuilder:
    counted = _SCOPE.metric("hooks_total")
    about = About(
        "Hooks",
        "Commands that ran for events, and how they ended.",
        "no hooks are configured, or none ran in this period",
    )
    return columns(about, [Query(rises(counted, "hook, outcome"), "{{hook}}, {{outcome}}")])


def _hook_duration() -> PanelBuilder:
    about = About(
        "Hook duration",
        "Mean duration of each hook's runs. A hook that an approval waits for must end before NotBefore.",
        "no hooks are configured, or none ran in this period",
        "s",
    )
    total, count = (f"hook_duration_seconds_{part}" for part in ("sum", "count"))
    rates = [f"sum by (hook) (rate({_SCOPE.metric(name)}[$__rate_interval]))" for name in (total, count)]
    return lines(about, [Query(f"{rates[0]} / ({rates[1]} > 0)", "{{hook}}")]).show_points(
        VisibilityMode.ALWAYS
    )


def _approvals() -> PanelBuilder:
    counted = _SCOPE.metric("approvals_total")
    about = About(
        "Approvals",
        "What the approval rules of this VM did: approved; would have approved (dry_run); tries that failed;"
        " or held back by the limit per hour (limited). Another VM of an event may have approved it.",
        "no rule approved anything in this period, or none is configured",
    )
    return columns(about, [Query(rises(counted, "rule, outcome"), "{{rule}}, {{outcome}}")])
