"""Values as Grafana writes them, for the units that the dashboards use."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

COLORS = {
    "green": "#73bf69",
    "yellow": "#fade2a",
    "orange": "#ff9830",
    "red": "#f2495c",
    "blue": "#5794f2",
    "purple": "#b877d9",
    "dark-red": "#c4162a",
    "dark-orange": "#fa6400",
    "light-orange": "#ffb357",
    "super-light-blue": "#c0d8ff",
    "light-blue": "#8ab8ff",
    "semi-dark-blue": "#3274d9",
    "dark-blue": "#1f60c4",
    "light-green": "#96d98d",
    "dark-green": "#37872d",
    "text": "#ccccdc",
}
PALETTE = ("#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0", "#37872d")

_DURATIONS = ((31557600, "year"), (604800, "week"), (86400, "day"), (3600, "hour"), (60, "min"), (1, "s"))
_SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def color(name: str) -> str:
    """Return a named colour as matplotlib takes it."""
    return COLORS.get(name, name)


def shade(base: str, index: int) -> str:
    """Return a colour's shade for a series: in turn darker and lighter, and itself for the first."""
    amount = (index + 1) // 2 * 0.15 * (-1 if index % 2 else 1)
    parts = (int(base[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{min(max(round(part * (1 + amount)), 0), 255):02x}" for part in parts)


def text(value: float, unit: str, decimals: int | None = None) -> str:
    """Write a value in its unit."""
    if math.isnan(value):
        return ""
    if unit == "s":
        return _duration(value, decimals)
    if unit == "dateTimeAsIso":
        return f"{datetime.fromtimestamp(value / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    if unit == "bytes":
        size, name = next(((s, n) for s, n in _SIZES if abs(value) >= s), (1, "B"))
        return f"{_number(value / size, 1)} {name}"
    if unit == "percentunit":
        return f"{_number(value * 100, 2 if decimals is None else decimals)}%"
    return _number(value, decimals) + (" req/s" if unit == "reqps" else "")


def mapped(value: float | str, field: Mapping[str, Any]) -> tuple[str, str] | None:
    """Find the word and colour that a value is shown as."""
    for mapping in field.get("mappings", []):
        found = mapping["options"].get(value if isinstance(value, str) else f"{value:g}")
        if found:
            return found["text"], color(found["color"])
    return None


def by_threshold(value: float, steps: Sequence[Mapping[str, Any]]) -> str:
    """Find the colour of the last step that a value has reached."""
    reached = [step["color"] for step in steps if step["value"] is None or value >= step["value"]]
    return color(reached[-1])


def _duration(seconds: float, decimals: int | None) -> str:
    if not seconds:
        return "0 s"
    if abs(seconds) < 1:
        return f"{_number(seconds * 1000, 1 if decimals is None else decimals)} ms"
    size, name = next((size, name) for size, name in _DURATIONS if abs(seconds) >= size)
    value = _number(seconds / size, 1 if decimals is None else decimals)
    return f"{value} {name}{'s' if len(name) > 3 and value != '1' else ''}"


def _number(value: float, decimals: int | None) -> str:
    if decimals is not None:
        return f"{value:.{decimals}f}" if value else "0"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
