"""Tables: rows merged from several queries as Grafana merges them, and drawn."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.patches import Rectangle

from scripts.pictures import formats
from scripts.pictures.drawing import INK, LINE, Canvas

Row = dict[str, Any]
_ROW_PIXELS = 30.0
_PIXELS_A_LETTER = 6.6


def merge(frames: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> list[Row]:
    """Join the rows of queries, each with the name of its value, where labels that they share are equal."""
    rows: list[Row] = []
    for name, found in frames:
        for series in found:
            labels = dict(series["metric"])
            value = float(series["values"][-1][1])
            partners = [row for row in rows if name not in row and _alike(row, labels)]
            for row in partners:
                row.update(labels)
                row[name] = value
            if not partners:
                rows.append({**labels, name: value})
    return rows


def _alike(row: Row, labels: Mapping[str, str]) -> bool:
    shared = row.keys() & labels.keys()
    return bool(shared) and all(row[label] == labels[label] for label in shared)


def draw(canvas: Canvas, panel: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Draw a table's columns in their order, sorted, with cells in their colours."""
    options = next(it["options"] for it in panel["transformations"] if it["id"] == "organize")
    names = sorted(options["indexByName"], key=options["indexByName"].__getitem__)
    names = [name for name in names if name not in options["excludeByName"]]
    titles = options["renameByName"]
    overrides = {
        override["matcher"]["options"]: {each["id"]: each["value"] for each in override["properties"]}
        for override in panel["fieldConfig"]["overrides"]
    }
    widths = _widths(
        canvas.width - 20, [overrides.get(titles[name], {}).get("custom.width") for name in names]
    )
    ordered = _sorted(rows, panel, {title: name for name, title in titles.items()})
    x = 10.0
    for name, width in zip(names, widths, strict=True):
        canvas.axes.text(x + 4, 46, titles[name], color="#6e9fff", size=8.5, weight="bold", va="center")
        for index, row in enumerate(ordered[: int((canvas.height - 60) / _ROW_PIXELS)]):
            y = 60 + index * _ROW_PIXELS
            canvas.axes.plot([10, canvas.width - 10], [y, y], color=LINE, lw=0.6)
            _cell(canvas, (x, y, width), row.get(name), overrides.get(titles[name], {}), panel)
        x += width


def _sorted(rows: Sequence[Row], panel: Mapping[str, Any], names: Mapping[str, str]) -> list[Row]:
    """Sort as the transformation says, then as the table says; the second leaves equals in place."""
    first = [(by["field"], False) for by in panel["transformations"][-1]["options"].get("sort", [])]
    orders = first + [(by["displayName"], by["desc"]) for by in panel["options"]["sortBy"]]
    ordered = list(rows)
    for title, descending in orders:
        key = names[title]
        known = [row for row in ordered if key in row]
        ordered = sorted(known, key=lambda row: row[key], reverse=descending) + [
            row for row in ordered if key not in row
        ]
    return ordered


def _cell(
    canvas: Canvas,
    place: tuple[float, float, float],
    value: object,
    override: Mapping[str, Any],
    panel: Mapping[str, Any],
) -> None:
    x, y, width = place
    ink, shown = INK, ""
    word = formats.mapped(value, override) if isinstance(value, str | float) else None
    if word:
        shown = word[0]
        if word[1] != "transparent":
            ink = "#111217"
            canvas.axes.add_patch(Rectangle((x, y + 3), width - 6, _ROW_PIXELS - 6, color=word[1], lw=0))
    elif isinstance(value, str):
        shown = value
        ink = "#6e9fff" if "links" in override else INK
    elif isinstance(value, float):
        unit = override.get("unit", panel["fieldConfig"]["defaults"]["unit"])
        shown = formats.text(value, unit, override.get("decimals"))
        if "thresholds" in override:
            ink = formats.by_threshold(value, override["thresholds"]["steps"])
    room = int((width - 8) / _PIXELS_A_LETTER)
    shown = shown if len(shown) <= room else shown[: room - 1] + "…"
    canvas.axes.text(x + 4, y + _ROW_PIXELS / 2, shown, color=ink, size=8.5, va="center")


def _widths(total: float, wanted: Sequence[float | None]) -> list[float]:
    fixed = sum(width for width in wanted if width is not None)
    free = sum(width is None for width in wanted)
    share = max((total - fixed) / free, 60) if free else 0
    widths = [share if width is None else float(width) for width in wanted]
    scale = min(total / sum(widths), 1)
    return [width * scale for width in widths]
