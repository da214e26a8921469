"""Colours and words for values: the same on all three dashboards."""

from collections.abc import Mapping

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models.dashboard import (
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMapping,
    ValueMappingResult,
)

CALM, NOTICE, ALARM, UNKNOWN, PLAIN = "green", "orange", "red", "purple", "blue"
NOTHING = "transparent"
"""For a number that needs no colour among coloured ones."""

SEVERITIES = {1: ("info", PLAIN), 2: ("warning", NOTICE), 3: ("critical", ALARM)}
"""The severities of events by the values of `promql.graded`: events have no other colours."""

STATES = {-2: ("down", ALARM), -1: ("not known", UNKNOWN), 0: ("no event", "#2c3235")} | SEVERITIES
"""How the values of `promql.graded` read, with those for the time without an event."""

WATCH = {
    -1: ("down", ALARM),
    0: ("blind", UNKNOWN),
    1: ("watched", CALM),
}
"""How the values of `promql.watch` read."""

OUTCOMES = {
    "success": CALM,
    "delivered": CALM,
    "succeeded": CALM,
    "exported": CALM,
    "completed": CALM,
    "approved": "dark-green",
    "cancelled": "light-green",
    "scheduled": "light-blue",
    "advised": "super-light-blue",
    "imminent": "semi-dark-blue",
    "updated": "yellow",
    "dry_run": PLAIN,
    "limited": "yellow",
    "throttled": "yellow",
    "started": "dark-blue",
    "failed": ALARM,
    "hook_failed": "dark-red",
    "timeout": NOTICE,
    "timed_out": NOTICE,
    "connection_error": ALARM,
    "http_error": "dark-red",
    "invalid_document": "dark-orange",
    "expired": "dark-red",
    "refused": "dark-orange",
    "dropped": ALARM,
    "vanished": UNKNOWN,
}
"""The colours of outcomes and transitions, by the label's value: phases of events are shades of blue."""


def patterns() -> dict[str, str]:
    """Return for each colour of `OUTCOMES` a regex for the names of series that end in such an outcome."""
    return {
        color: f"/(^|, )({'|'.join(word for word, its in OUTCOMES.items() if its == color)})$/"
        for color in OUTCOMES.values()
    }


def failures() -> str:
    """Return a regex for the names of series that end in an outcome that is a failure."""
    bad = (
        "failed",
        "error",
        "timeout",
        "timed_out",
        "throttled",
        "document",
        "expired",
        "refused",
        "dropped",
    )
    return f"/({'|'.join(bad)})$/"


def words(meanings: Mapping[int, tuple[str, str]] | Mapping[str, tuple[str, str]]) -> list[ValueMapping]:
    """Show values as words, each in its colour."""
    results = {
        str(value): ValueMappingResult(text=text, color=color, index=index)
        for index, (value, (text, color)) in enumerate(meanings.items())
    }
    return [ValueMap(options=results)]


def thresholds(steps: Mapping[float, str], below: str = CALM) -> dashboard.ThresholdsConfig:
    """Colour values from each step on; ``below`` is for what is under the first."""
    first = [Threshold(value=None, color=below)]
    rest = [Threshold(value=value, color=color) for value, color in sorted(steps.items())]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(first + rest)


def colored(mode: FieldColorModeId, fixed: str = "") -> dashboard.FieldColor:
    """Colour by a rule of Grafana's, or with one colour."""
    color = dashboard.FieldColor().mode(mode)
    return color.fixed_color(fixed) if fixed else color
