"""Reading dashboards as Grafana does: their panels, their queries, their variables put in."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent.parent / "dashboards"
NAMES = ("fleet", "instance", "exporter")

_VARIABLE = re.compile(r"\$\{?([a-z_]\w*)\}?")
_METRIC = re.compile(r"\b(?:azure_scheduled_events[_:]|process_)[\w:]+|\bup(?=\{)")


@dataclass(frozen=True)
class Asked:
    """A query of a panel, or of an annotation; ``coarse`` if the panel has a large minimum interval."""

    panel: str
    expression: str
    instant: bool
    name: str = ""
    format: str = "time_series"
    coarse: bool = False

    @property
    def metrics(self) -> frozenset[str]:
        """The metrics it names."""
        return frozenset(_METRIC.findall(self.expression))


def load(name: str) -> dict[str, Any]:
    """Read a committed dashboard."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def panels(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return its panels, headings left out."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(dashboard: Mapping[str, Any]) -> Iterator[Asked]:
    """Return every query that the dashboard asks: of panels, annotations and variables."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield asked(panel, target)
    for annotation in dashboard["annotations"]["list"]:
        yield Asked(f"annotation {annotation['name']}", annotation["expr"], instant=False)


def asked(panel: Mapping[str, Any], target: Mapping[str, Any]) -> Asked:
    """Read one query of a panel."""
    return Asked(
        panel=panel["title"],
        expression=target["expr"],
        instant=target.get("instant", False),
        name=target.get("legendFormat", ""),
        format=target["format"],
        coarse="interval" in panel,
    )


def interpolate(expression: str, values: Mapping[str, str]) -> str:
    """Put values of variables in.

    Raises:
        KeyError: one is unknown.
    """
    return _VARIABLE.sub(lambda match: values[match[1]], expression)


def spans(seconds: int, *, interval: float, scrape: float, instance: str = ".*") -> dict[str, str]:
    """Return the variables' values for a period with points so many seconds apart, as Grafana has them."""
    rate = max(interval + scrape, 4 * scrape)
    return {
        "job": "azure-scheduled-events-exporter",
        "cluster": ".*",
        "instance": instance,
        "event_type": ".*",
        "__range": f"{seconds}s",
        "__interval": f"{interval * 1000:.0f}ms",
        "__rate_interval": f"{rate * 1000:.0f}ms",
    }
