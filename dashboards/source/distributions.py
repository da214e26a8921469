"""Histograms of the exporter as bars, one for each of their buckets."""

import re

from dashboards.source.frame import PanelBuilder
from dashboards.source.panels import About, bars
from dashboards.source.promql import Scope, grew
from dashboards.source.queries import Query, Shape

BUCKETS = {
    "notice_seconds": (0, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 21600, 86400, 604800),
    "impact_seconds": (1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200),
    "observed_pause_seconds": (0.25, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 60, 120),
}
"""The upper limits of the histograms that are shown bucket by bucket, seconds."""


def distribution(about: About, scope: Scope, histogram: str) -> PanelBuilder:
    """Show how often a histogram of `BUCKETS` observed what in the period; it is named without prefix."""
    grown = grew(scope.metric(f"{histogram}_bucket"))
    query = Query(f"sum by (le) ({grown})", "{{le}}", Shape.BUCKETS)
    return bars(about, [query], names=_names(BUCKETS[histogram]))


def _names(limits: tuple[float, ...]) -> dict[str, str]:
    """Say for each bucket, by a regex for its upper limit, what it holds."""
    words = ["none" if limit == 0 else f"up to {_words(limit)}" for limit in limits]
    named = {f"/^{re.escape(f'{limit}')}(\\.0)?$/": word for limit, word in zip(limits, words, strict=True)}
    return named | {"/^\\+Inf$/": f"over {_words(limits[-1])}"}


def _words(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    size, unit = next((size, unit) for size, unit in _UNITS if seconds % size == 0)
    return f"{seconds // size:.0f} {unit}"


_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
