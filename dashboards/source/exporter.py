"""The dashboard `Exporter`: is the watch itself well."""

from dataclasses import replace

from grafana_foundation_sdk.models.common import VisibilityMode
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.source import style
from dashboards.source.frame import EXPORTER, Frame, PanelBuilder, vm_link
from dashboards.source.panels import About, columns, lines, numbers, timeline
from dashboards.source.promql import Scope, quantile, rises, whole
from dashboards.source.queries import Query, Shape
from dashboards.source.tables import Column, table_of

_SCOPE = Scope()
_NO_EXPORTER = "no exporter of this job is scraped"


def exporter() -> Dashboard:
    """Build it."""
    frame = Frame(
        EXPORTER,
        "The exporters themselves: whether Azure answers them, messages arrive, and what they take of their"
        " VMs.",
        _SCOPE,
        typed=False,
    )
    frame.row(
        4, [(4, _down()), (4, _blind()), (4, _age()), (4, _degraded()), (4, _reloads()), (4, _restarts())]
    )
    frame.row(8, [(24, _exporters())])
    frame.heading("Polls of Azure")
    frame.row(8, [(8, _polls()), (8, _latency()), (8, _ages())])
    frame.heading("Notifications and traces")
    frame.row(8, [(8, _messages()), (8, _delay()), (8, _outbox())])
    frame.row(8, [(8, _spans()), (16, _troubles())])
    frame.heading("Resource usage")
    frame.row(8, [(6, _memory()), (6, _cpu()), (6, _files()), (6, _age_of_process())])
    return frame.build()


def _down() -> PanelBuilder:
    about = About(
        "Down", "Exporters that cannot be scraped. A VM that reboots is down for a while.", _NO_EXPORTER
    )
    up = _SCOPE.other("up")
    return numbers(about, [Query(f"sum(1 - {up})", shape=Shape.NOW)], steps={1: style.ALARM}, decimals=0)


def _blind() -> PanelBuilder:
    about = About("Blind", "Exporters whose last poll of Azure gave no valid answer.", _NO_EXPORTER)
    query = Query(f"sum(1 - {_SCOPE.metric('up')})", shape=Shape.NOW)
    return numbers(about, [query], steps={1: style.ALARM}, decimals=0)


def _age() -> PanelBuilder:
    about = About(
        "Oldest success",
        "Age of the last valid answer of the exporter that has waited longest.",
        _NO_EXPORTER,
        "s",
    )
    query = Query(f"time() - min({_SCOPE.metric('last_success_timestamp_seconds')})", shape=Shape.NOW)
    return numbers(about, [query], steps={120: style.NOTICE, 300: style.ALARM}, decimals=0)


def _degraded() -> PanelBuilder:
    about = About(
        "Degraded",
        "Exporters that are degraded; the panel below shows the reasons, and /api/v1/status the details.",
        _NO_EXPORTER,
    )
    reasons = f"max without (reason) ({_SCOPE.metric('degraded')})"
    return numbers(about, [Query(f"sum({reasons})", shape=Shape.NOW)], steps={1: style.NOTICE}, decimals=0)


def _reloads() -> PanelBuilder:
    about = About(
        "Failed reloads",
        "Exporters whose last reload failed: they go on with the configuration they had.",
        _NO_EXPORTER,
    )
    query = Query(f"sum(1 - {_SCOPE.metric('config_last_reload_successful')})", shape=Shape.NOW)
    return numbers(about, [query], steps={1: style.ALARM}, decimals=0)


def _restarts() -> PanelBuilder:
    about = About(
        "Restarts", "Restarts of exporters in this period, those with their VMs included.", _NO_EXPORTER
    )
    query = Query(f"sum(changes({_SCOPE.other('process_start_time_seconds')}[$__range]))", shape=Shape.NOW)
    return numbers(about, [query], decimals=0)


def _exporters() -> PanelBuilder:
    by = "by (job, instance)"
    about = About(
        "Exporters",
        "One row for each. State: what its last poll of Azure was like. A click on the VM opens its"
        " dashboard.",
        _NO_EXPORTER,
    )
    watch = {0: ("blind", style.ALARM), 1: ("watching", style.CALM)}
    started = _SCOPE.other("process_start_time_seconds")
    cpu = _SCOPE.other("process_cpu_seconds_total")
    success = _SCOPE.metric("last_success_timestamp_seconds")
    memory = _SCOPE.other("process_resident_memory_bytes")
    version = f"max by (job, instance, version, python_version) ({_SCOPE.metric('build_info')})"
    return table_of(
        about,
        [
            Column("VM", "instance", link=vm_link("VM")),
            Column("Job", "job"),
            Column("State", "", f"max {by} ({_SCOPE.metric('up')})", width=110, states=watch),
            Column("Last success", "", f"time() - max {by} ({success})", "s", 120, decimals=0),
            Column("Incarnation", "", f"max {by} ({_SCOPE.metric('document_incarnation')})", "none", 110),
            Column("Uptime", "", f"time() - max {by} ({started})", "s", 120, decimals=0),
            Column("Memory", "", f"max {by} ({memory})", "bytes", 110),
            Column("CPU", "", f"max {by} (rate({cpu}[$__rate_interval]))", "percentunit", 100, decimals=2),
            Column("Version", "version", width=100),
            Column("Python", "python_version", width=100),
            Column("Build", "", version, hidden=True),
        ],
        sort="State",
    )


def _polls() -> PanelBuilder:
    about = About(
        "Poll rate",
        "Requests to Azure, by how they ended. Each exporter asks once a second; in trouble less and less"
        " often.",
        _NO_EXPORTER,
        "reqps",
    )
    rate = f"sum by (outcome) (rate({_SCOPE.metric('polls_total')}[$__rate_interval]))"
    return lines(about, [Query(rate, "{{outcome}}")], stacked=True)


def _latency() -> PanelBuilder:
    buckets = _SCOPE.metric("poll_duration_seconds_bucket")
    about = About(
        "Poll duration",
        "Time for a poll, those that failed included. The first answer of a VM may take two minutes.",
        _NO_EXPORTER,
        "s",
    )
    shares = {0.5: "p50", 0.95: "p95", 0.99: "p99"}
    return lines(about, [Query(quantile(share, buckets), name) for share, name in shares.items()])


def _ages() -> PanelBuilder:
    success = _SCOPE.metric("last_success_timestamp_seconds")
    about = About(
        "Age of last success",
        "Of the exporter that waits longest, and of the one in the middle. It is a second or two at most"
        " where all is well.",
        _NO_EXPORTER,
        "s",
    )
    age = f"(timestamp({success}) - {success})"
    return lines(about, [Query(f"max({age})", "max"), Query(f"quantile(0.5, {age})", "p50")])


def _messages() -> PanelBuilder:
    about = About(
        "Notifications",
        "By outcome. A failed attempt is repeated; expired and refused messages are lost.",
        "no notification targets are configured",
    )
    return columns(about, [Query(whole(_SCOPE.metric("notifications_total"), "outcome"), "{{outcome}}")])


def _delay() -> PanelBuilder:
    about = About(
        "Notification delay, p95",
        "How late messages arrived, by target. Nothing is drawn where none was sent.",
        "no message was delivered in this period",
        "s",
    )
    buckets = _SCOPE.metric("notification_delay_seconds_bucket")
    worst = f"histogram_quantile(0.95, sum by (target, le) (rate({buckets}[$__rate_interval]))) >= 0"
    return lines(about, [Query(worst, "{{target}}")]).show_points(VisibilityMode.ALWAYS)


def _outbox() -> PanelBuilder:
    about = About(
        "Notifications pending",
        "What is in the outbox, target by target. It survives restarts.",
        "no notification targets are configured",
    )
    waiting = f"sum by (target) ({_SCOPE.metric('notifications_pending')})"
    return lines(about, [Query(waiting, "{{target}}")])


def _spans() -> PanelBuilder:
    about = About(
        "Spans",
        "Spans of traces: exported, or dropped, as the receiver refused them or did not take them in time.",
        "tracing is off, or nothing happened in this period",
    )
    return columns(about, [Query(rises(_SCOPE.metric("spans_total"), "outcome"), "{{outcome}}")])


def _troubles() -> PanelBuilder:
    about = About(
        "Degraded reasons",
        "A row for each reason to be degraded, whether one exporter has it or many.",
        _NO_EXPORTER,
        "none",
    )
    query = Query(f"max by (reason) ({_SCOPE.metric('degraded')})", "{{reason}}")
    return timeline(about, [query], style.words({0: ("ok", "#2c3235"), 1: ("degraded", style.NOTICE)}))


def _spread(about: About, series: str) -> PanelBuilder:
    return lines(about, [Query(f"max({series})", "max"), Query(f"quantile(0.5, {series})", "p50")])


def _memory() -> PanelBuilder:
    about = About(
        "Memory usage",
        "Resident memory: of the largest, and of the one in the middle.",
        _NO_EXPORTER,
        "bytes",
    )
    return _spread(about, _SCOPE.other("process_resident_memory_bytes"))


def _cpu() -> PanelBuilder:
    about = About(
        "CPU usage", "Share of one processor: of the busiest, and of the one in the middle.", _NO_EXPORTER
    )
    rate = f"rate({_SCOPE.other('process_cpu_seconds_total')}[$__rate_interval])"
    return _spread(replace(about, unit="percentunit"), rate)


def _files() -> PanelBuilder:
    about = About("Open files", "File descriptors, connections included.", _NO_EXPORTER)
    return _spread(about, _SCOPE.other("process_open_fds"))


def _age_of_process() -> PanelBuilder:
    about = About(
        "Uptime",
        "Time since exporters were started: of the youngest, and of the one in the middle. A line that falls"
        " to the ground is a restart.",
        _NO_EXPORTER,
        "s",
    )
    age = f"(time() - {_SCOPE.other('process_start_time_seconds')})"
    return lines(about, [Query(f"min({age})", "min"), Query(f"quantile(0.5, {age})", "p50")])
