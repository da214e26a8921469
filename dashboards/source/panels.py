"""Panels of the kinds that the dashboards use, each with description, unit, and words for having no data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from grafana_foundation_sdk.builders import common, stat, statetimeline, timeseries
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    GraphDrawStyle,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import DynamicConfigValue, FieldColorModeId, ValueMapping

from dashboards.source import style
from dashboards.source.queries import DATASOURCE, Query, targets

Panel = TypeVar("Panel", stat.Panel, timeseries.Panel, statetimeline.Panel)


@dataclass(frozen=True)
class About:
    """What every panel says of itself; ``empty`` is shown where there is no data, and says why."""

    title: str
    description: str
    empty: str
    unit: str = "short"


def _begin(panel: Panel, about: About, queries: Sequence[Query]) -> Panel:
    return (
        panel.title(about.title)
        .description(about.description)
        .unit(about.unit)
        .no_value(about.empty)
        .datasource(DATASOURCE)
        .targets(list(targets(queries)))
    )


def numbers(
    about: About,
    queries: Sequence[Query],
    *,
    steps: Mapping[float, str] | None = None,
    below: str = style.CALM,
    mappings: Sequence[ValueMapping] = (),
    decimals: int | None = None,
) -> stat.Panel:
    """Big numbers, coloured by thresholds."""
    panel = (
        _begin(stat.Panel(), about, queries)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .color_mode(BigValueColorMode.BACKGROUND if steps else BigValueColorMode.NONE)
        .graph_mode(BigValueGraphMode.NONE)
        .text_mode(BigValueTextMode.VALUE_AND_NAME if len(queries) > 1 else BigValueTextMode.AUTO)
        .thresholds(style.thresholds(steps or {}, below))
        .color_scheme(style.colored(FieldColorModeId.THRESHOLDS))
        .mappings(list(mappings))
    )
    return panel if decimals is None else panel.decimals(decimals)


_DASHED = {"fill": "dash", "dash": [6, 4]}


def _drawn(about: About, queries: Sequence[Query], minimum: float | None) -> timeseries.Panel:
    panel = (
        _begin(timeseries.Panel(), about, queries)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
        .show_points(VisibilityMode.NEVER)
    )
    if any(query.name.endswith(("outcome}}", "transition}}")) for query in queries):
        # Of two hooks that succeeded, each has its own shade.
        mode = "shades" if any(query.name.count("{{") > 1 for query in queries) else "fixed"
        panel.override_by_regexp(style.failures(), [DynamicConfigValue("custom.lineStyle", _DASHED)])
        for color, pattern in style.patterns().items():
            panel.override_by_regexp(
                pattern, [DynamicConfigValue("color", {"mode": mode, "fixedColor": color})]
            )
    if about.unit == "short":
        panel.decimals(0)  # a count, whose axis is to have no fractions
    return panel if minimum is None else panel.min(minimum)


def lines(
    about: About,
    queries: Sequence[Query],
    *,
    minimum: float | None = 0,
    stacked: bool = False,
) -> timeseries.Panel:
    """Lines over time, or areas on top of one another; series named for an outcome have its colour."""
    panel = _drawn(about, queries, minimum).line_width(1).fill_opacity(60 if stacked else 8)
    mode = StackingMode.NORMAL if stacked else StackingMode.NONE
    return panel.stacking(common.StackingConfig().mode(mode).group("A"))


def columns(about: About, queries: Sequence[Query], *, interval: str = "5m") -> timeseries.Panel:
    """Columns over time, on top of one another, at least ``interval`` apart: for what happens rarely."""
    # Colours alone do not tell outcomes apart for everyone: the legend has their numbers.
    return (
        _drawn(about, queries, 0)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.TABLE)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["sum"])
        )
        .draw_style(GraphDrawStyle.BARS)
        .line_width(0)
        .fill_opacity(90)
        .interval(interval)
        .stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    )


def timeline(
    about: About, queries: Sequence[Query], mappings: Sequence[ValueMapping], *, row_height: float = 0.8
) -> statetimeline.Panel:
    """States over time, a row for each series; a hole is a time without any scrape."""
    return (
        _begin(statetimeline.Panel(), about, queries)
        .mappings(list(mappings))
        .color_scheme(style.colored(FieldColorModeId.THRESHOLDS))
        .thresholds(style.thresholds({}, "text"))
        .show_value(VisibilityMode.AUTO)
        .merge_values(True)
        .row_height(row_height)
        .line_width(0)
        .fill_opacity(85)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
    )
