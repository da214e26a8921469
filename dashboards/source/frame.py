"""What the three dashboards share: variables, links to one another, annotations."""

from collections.abc import Sequence
from itertools import count

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import (
    AnnotationQuery,
    DashboardCursorSync,
    DashboardLinkType,
    VariableHide,
    VariableModel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.dashboard import Dashboard as Built

from dashboards.source import style
from dashboards.source.promql import CRITICAL, PREFIX, STARTED, Scope
from dashboards.source.queries import DATASOURCE

JOB = "azure-scheduled-events-exporter"
FLEET, INSTANCE, EXPORTER = "azse-fleet", "azse-instance", "azse-exporter"
"""The uids of the dashboards, by which they link to one another."""

_TITLES = {FLEET: "Fleet", INSTANCE: "Instance", EXPORTER: "Exporter"}
_ANNOTATION_STEP = "1m"


PanelBuilder = stat.Panel | timeseries.Panel | statetimeline.Panel | table.Panel
"""A panel of any kind."""


def vm_link(label: str) -> str:
    """Lead to the dashboard of the VM that a row of a table names in the column ``label``."""
    keep = "&".join(f"${{{name}:queryparam}}" for name in ("datasource", "job", "cluster"))
    return f"/d/{INSTANCE}?{keep}&${{__url_time_range}}&var-instance=${{__data.fields.{label}}}"


class Frame:
    """A dashboard in the making: rows of panels, placed from left to right and top to bottom."""

    def __init__(self, uid: str, description: str, scope: Scope, *, typed: bool = True) -> None:
        """``typed``: whether it shows anything by type of event, so that the variable makes sense."""
        self._scope = scope
        self._ids = count(1)
        self._builder = (
            dashboard.Dashboard(f"Azure Scheduled Events / {_TITLES[uid]}")
            .uid(uid)
            .description(description)
            .tags(["azure", "azure-scheduled-events"])
            .timezone("browser")
            .editable()
            .tooltip(DashboardCursorSync.CROSSHAIR)
            .time("now-1h" if uid == EXPORTER else "now-24h", "now")
            .refresh("30s")
            .version(1)
            .variables(_variables(one=scope.one, typed=typed))
            .annotations(_annotations(scope) if typed else [])
            .links([_link(uid, other) for other in _TITLES if other != uid])
        )

    def heading(self, title: str) -> None:
        """Begin a part with a title."""
        self._builder.with_row(dashboard.Row(title).id(next(self._ids)).collapsed(False))

    def row(self, height: int, panels: Sequence[tuple[int, PanelBuilder]]) -> None:
        """Place panels, each with its width, side by side; together they are as wide as the dashboard."""
        for width, panel in panels:
            self._builder.with_panel(panel.id(next(self._ids)).span(width).height(height))

    def build(self) -> Built:
        """Return the dashboard."""
        return self._builder.build()


def _link(here: str, there: str) -> dashboard.DashboardLink:
    # The VM goes along only where both dashboards can show a single one.
    names = ["datasource", "job", "cluster"]
    names += ["instance"] if (here, there) == (INSTANCE, EXPORTER) else []
    names += ["event_type"] if EXPORTER not in (here, there) else []
    query = "&".join(f"${{{name}:queryparam}}" for name in names)
    return (
        dashboard.DashboardLink(_TITLES[there])
        .type(DashboardLinkType.LINK)
        .icon("dashboard")
        .tooltip(f"The dashboard {_TITLES[there]}, for the same period")
        .url(f"/d/{there}?{query}")
        .keep_time(True)
    )


def _variables(*, one: bool, typed: bool) -> list[Builder[VariableModel]]:
    datasource = dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
    job = _query("job", "Job", f"label_values({PREFIX}up, job)").multi(True)
    job = job.current(VariableOption(selected=True, text=[JOB], value=[JOB]))
    cluster = _all(_query("cluster", "Cluster", f'label_values({PREFIX}up{{job=~"$job"}}, cluster)'))
    chosen = 'job=~"$job",cluster=~"$cluster"'
    instance = _query("instance", "VM", f"label_values(up{{{chosen}}}, instance)")
    event_type = _query("event_type", "Type", f'label_values({PREFIX}pending{{job=~"$job"}}, event_type)')
    filters = dashboard.AdHocVariable("filters").label("Labels").datasource(DATASOURCE)
    filters = filters.description("Any other label of your targets, such as namespace or team.")
    return [
        datasource.hide(VariableHide.DONT_HIDE),
        job,
        cluster,
        instance if one else _all(instance),
        *([_all(event_type)] if typed else []),
        filters,
    ]


def _query(name: str, label: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .query({"query": query, "refId": name})
        .definition(query)
        .datasource(DATASOURCE)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
    )


def _all(variable: dashboard.QueryVariable) -> dashboard.QueryVariable:
    everything = VariableOption(selected=True, text=["All"], value=["$__all"])
    return variable.multi(True).include_all(True).all_value(".*").current(everything)


def _annotations(scope: Scope) -> list[Builder[AnnotationQuery]]:
    """Mark when each event was first seen, and when it started."""
    by = "by (event_id, event_type)"
    seen = f"1000 * min {by} ({scope.metric('event_first_seen_timestamp_seconds')})"
    started, critical = (
        f"1000 * min {by} ({scope.event(STARTED, matcher)} > 0)"
        for matcher in (CRITICAL.replace("=", "!=", 1), CRITICAL)
    )
    return [
        _annotation("First seen", "light-blue", seen, "{{event_type}} first seen"),
        _annotation("Started", style.PLAIN, started, "{{event_type}} started"),
        _annotation("Started, critical", style.ALARM, critical, "{{event_type}} started"),
    ]


def _annotation(name: str, color: str, expression: str, title: str) -> dashboard.AnnotationQuery:
    # Grafana 12 asks the target; those before it ask the expression beside it.
    target = prometheus.Dataquery().datasource(DATASOURCE).expr(expression).ref_id("Anno")
    target = target.interval(_ANNOTATION_STEP).range()
    return (
        dashboard.AnnotationQuery()
        .target(target)
        .name(name)
        .datasource(DATASOURCE)
        .expr(expression)
        .icon_color(color)
        .title_format(title)
        .text_format("{{event_id}}")
        .tag_keys("event_type")
        .step(_ANNOTATION_STEP)
        .use_value_for_time(True)
        .enable(True)
    )
