"""Which of the exporter's own variables hooks do not get: those that hold its secrets.

A hook runs as the exporter's user and could find them all the same. But what it prints goes to the log, and
what it starts inherits all that it has: a secret that it was never given does not get there by mistake.
"""

import re
from collections.abc import Collection

# URLs of targets, as --notify has them.
_NOTIFY = "SCHEDULED_EVENTS_NOTIFY"
# OpenTelemetry's "Protocol Exporter" page: what receivers ask for, as for an API key, for all or one signal.
_HEADERS = re.compile(r"OTEL_EXPORTER_OTLP_([A-Z]+_)?HEADERS")


class Withheld:
    """The names to withhold; ``named`` are those that the configuration has in ``${...}``."""

    def __init__(self, named: Collection[str] = ()) -> None:
        # In upper case, because Windows tells none from the other.
        self._folded = frozenset(name.upper() for name in named)
        self._named = frozenset(named)

    def has(self, name: str, *, fold: bool = False) -> bool:
        """Return whether a variable is withheld; ``fold`` where the system takes a for A in their names."""
        known = name.upper() in self._folded if fold else name in self._named
        return known or name == _NOTIFY or _HEADERS.fullmatch(name) is not None
