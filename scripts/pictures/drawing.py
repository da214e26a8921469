"""Panels, drawn much as Grafana draws them in the dark: enough to see what a person would see."""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from scripts.pictures import formats

INK, FAINT, LINE, GROUND, BACK = "#d8d9da", "#8e8e9a", "#2c3235", "#181b1f", "#111217"

Series = tuple[str, list[tuple[float, float]]]


@dataclass
class Canvas:
    """Where to draw a panel: ``axes`` span it, in pixels, from its top left; time goes from begin to end."""

    axes: Axes
    width: float
    height: float
    begin: float
    end: float
    marks: Sequence[tuple[float, str]] = ()


def numbers(canvas: Canvas, panel: Mapping[str, Any], found: Sequence[Series]) -> None:
    """Draw a value, in the colour of its threshold."""
    field = panel["fieldConfig"]["defaults"]
    (_, values), *_rest = found
    value = values[-1][1]
    word = formats.mapped(value, field)
    shown = word[0] if word else formats.text(value, field["unit"], field.get("decimals"))
    filled = panel["options"]["colorMode"] == "background"
    if filled:
        fill = word[1] if word else formats.by_threshold(value, field["thresholds"]["steps"])
        filled = fill != "transparent"
        if filled:
            canvas.axes.add_patch(Rectangle((0, 0), canvas.width, canvas.height, color=fill, alpha=0.85))
            canvas.axes.text(10, 16, panel["title"], color="white", size=9, weight="bold", va="center")
    canvas.axes.text(
        canvas.width / 2,
        canvas.height * 0.58,
        shown,
        color="white" if filled else INK,
        size=26,
        weight="bold",
        ha="center",
        va="center",
    )


def timeline(canvas: Canvas, panel: Mapping[str, Any], found: Sequence[Series]) -> None:
    """Draw states as stretches of colour, a row for each series."""
    field = panel["fieldConfig"]["defaults"]
    left = 14 + 6.4 * max(len(name) for name, _ in found)
    plot, top = canvas.width - left - 14, 36.0
    step = (canvas.height - top - 42) / len(found)
    scale = plot / (canvas.end - canvas.begin)
    for index, (name, values) in enumerate(found):
        y = top + index * step
        canvas.axes.text(left - 6, y + step / 2, name, color=INK, size=8, ha="right", va="center")
        for start, stop, value in _stretches(values):
            word, fill = formats.mapped(value, field) or (f"{value:g}", INK)
            x, length = left + (start - canvas.begin) * scale, (stop - start) * scale
            canvas.axes.add_patch(Rectangle((x, y + step * 0.1), length, step * 0.8, color=fill, lw=0))
            if length > 10 + 7.4 * len(word) and value:
                canvas.axes.text(
                    x + 5, y + step / 2, word, color="#111217", size=8, va="center", weight="bold"
                )
    for tick in _ticks(canvas):
        x = left + (tick - canvas.begin) * scale
        canvas.axes.text(x, canvas.height - 30, _clock(tick), color=FAINT, size=8, ha="center", va="center")
    _key(canvas, field, {value for _, values in found for _, value in values})


def _key(canvas: Canvas, field: Mapping[str, Any], shown: set[float]) -> None:
    """Draw the key to the colours."""
    x, y = 14.0, canvas.height - 12
    for word, fill in filter(None, (formats.mapped(value, field) for value in sorted(shown))):
        canvas.axes.add_patch(Rectangle((x, y - 4), 12, 8, color=fill, lw=0))
        canvas.axes.text(x + 17, y, word, color=INK, size=7.5, va="center")
        x += 36 + 6 * len(word)


def _stretches(values: Sequence[tuple[float, float]]) -> list[tuple[float, float, float]]:
    """Join points of equal values; where points are missing, a stretch ends."""
    step = min((b[0] - a[0] for a, b in itertools.pairwise(values)), default=1.0)
    joined: list[tuple[float, float, float]] = []
    for at, value in values:
        last = joined[-1] if joined else None
        if last and last[2] == value and at - last[1] < step / 2:
            joined[-1] = (last[0], at + step, value)
        else:
            joined.append((at, at + step, value))
    return joined


def curves(canvas: Canvas, panel: Mapping[str, Any], found: Sequence[Series]) -> None:
    """Draw lines, areas or columns over time, with annotations and a legend."""
    field = panel["fieldConfig"]["defaults"]
    across = max(int((canvas.width - 30) / (40 + 6 * max(len(name) for name, _ in found))), 1)
    plot = _plot(canvas, field, rows=math.ceil(len(found) / across))
    stacked = field["custom"].get("stacking", {}).get("mode") == "normal"
    columns = field["custom"].get("drawStyle") == "bars"
    base: dict[float, float] = {}
    for index, (name, points) in enumerate(found):
        hue = _hue(panel, name, index)
        values = points if columns else _torn(points)
        x = [at for at, _ in values]
        y = [value for _, value in values]
        below = [base.get(at, 0.0) for at in x] if stacked else [0.0] * len(x)
        tops = [low + value for low, value in zip(below, y, strict=True)]
        if stacked:
            base.update(zip(x, tops, strict=True))
        if columns:
            gap = min((b - a for a, b in itertools.pairwise(x)), default=1.0)
            plot.bar(x, y, width=gap * 0.85, bottom=below, color=hue, label=name)
        elif stacked:
            plot.fill_between(x, below, tops, color=hue, alpha=0.65, lw=0, label=name)
        else:
            dots = "o" if field["custom"].get("showPoints") == "always" else ""
            plot.plot(x, y, color=hue, lw=1.3, ls=_dash(panel, name), marker=dots, ms=3, label=name)
    if field.get("min") == 0:
        plot.set_ylim(bottom=0, top=None if plot.get_ylim()[1] > 0 else 1)
    for at, hue in canvas.marks:
        plot.axvline(at, color=formats.color(hue), lw=0.9, ls=(0, (3, 3)), alpha=0.8)
    _legend(canvas, plot, across)


def _torn(values: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Put a hole where points are missing."""
    step = min((b[0] - a[0] for a, b in itertools.pairwise(values)), default=1.0)
    torn = list(values[:1])
    for before, after in itertools.pairwise(values):
        if after[0] - before[0] > 1.5 * step:
            torn.append((before[0] + step, math.nan))
        torn.append(after)
    return torn


def _plot(canvas: Canvas, field: Mapping[str, Any], *, rows: int) -> Axes:
    box = canvas.axes.get_position()
    left, bottom = 62 / canvas.width, (34 + 15 * rows) / canvas.height
    inner = (
        box.x0 + box.width * left,
        box.y0 + box.height * bottom,
        box.width * (1 - left - 14 / canvas.width),
        box.height * (1 - bottom - 38 / canvas.height),
    )
    plot = canvas.axes.figure.add_axes(inner, facecolor="none")
    plot.set_xlim(canvas.begin, canvas.end)
    plot.set_xticks(_ticks(canvas), [_clock(tick) for tick in _ticks(canvas)])
    scale = field["custom"].get("scaleDistribution", {})
    if scale.get("type") == "symlog":
        plot.set_yscale("symlog", linthresh=scale["linearThreshold"])
        plot.set_yticks([-600, -60, 0, 60, 600, 3600, 86400])
    else:
        whole = field.get("decimals") == 0
        plot.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=whole))
    plot.yaxis.set_major_formatter(FuncFormatter(lambda value, _: formats.text(value, field["unit"])))
    plot.grid(color=LINE, lw=0.7)
    plot.tick_params(colors=FAINT, labelsize=8, length=0)
    for spine in plot.spines.values():
        spine.set_visible(False)
    return plot


def _legend(canvas: Canvas, plot: Axes, across: int) -> None:
    handles, names = plot.get_legend_handles_labels()
    canvas.axes.legend(
        handles,
        names,
        loc="lower left",
        bbox_to_anchor=(0.005, 0.0),
        ncols=across,
        frameon=False,
        fontsize=7.5,
        labelcolor=INK,
        handlelength=1.2,
        columnspacing=1.2,
        labelspacing=0.25,
        borderaxespad=0.3,
    )


def _hue(panel: Mapping[str, Any], name: str, index: int) -> str:
    for override in panel["fieldConfig"]["overrides"]:
        color = next((one["value"] for one in override["properties"] if one["id"] == "color"), None)
        if color and re.search(override["matcher"]["options"].strip("/"), name):
            base = formats.color(color["fixedColor"])
            return formats.shade(base, index) if color["mode"] == "shades" else base
    return formats.PALETTE[index % len(formats.PALETTE)]


def _dash(panel: Mapping[str, Any], name: str) -> str:
    """Return matplotlib's style of a line, which Grafana dashes where an override says so."""
    dashed = any(
        one["id"] == "custom.lineStyle" and re.search(override["matcher"]["options"].strip("/"), name)
        for override in panel["fieldConfig"]["overrides"]
        for one in override["properties"]
    )
    return "--" if dashed else "-"


def _ticks(canvas: Canvas) -> list[float]:
    seconds = canvas.end - canvas.begin
    room = max(int(canvas.width / 110), 2)
    step = next(step for step in (5, 10, 15, 30, 60, 120, 300, 600, 3600) if seconds / step <= room)
    # What is too near to an edge would be written beyond it.
    edge = 25 * seconds / canvas.width
    first = int((canvas.begin + edge) // step + 1) * step
    return [float(tick) for tick in range(first, int(canvas.end - edge) + 1, step)]


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}"


KINDS: Mapping[str, Callable[[Canvas, Mapping[str, Any], Sequence[Series]], None]] = {
    "stat": numbers,
    "state-timeline": timeline,
    "timeseries": curves,
}
"""How panels are drawn, by Grafana's names for them; tables are `tests.dashboards.tabular`."""
