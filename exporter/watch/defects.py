"""What could not be read of the documents: counted, logged and shown."""

import logging
from collections.abc import Sequence

from exporter.health import DegradedReason, Health
from exporter.metrics import Metrics
from exporter.model.documents import Defect

log = logging.getLogger(__name__)

_MOST_LOGGED = 10  # of each document


class Defects:
    """The defects of the newest document; used by one thread. Those of the one before are not new."""

    def __init__(self, metrics: Metrics, health: Health) -> None:
        self._metrics = metrics
        self._health = health
        self._known: frozenset[Defect] = frozenset()

    def note(self, defects: Sequence[Defect]) -> None:
        fresh = [defect for defect in defects if defect not in self._known]
        self._known = frozenset(defects)
        self._metrics.misunderstood(len(fresh))
        for defect in fresh[:_MOST_LOGGED]:
            log.warning("event could not be decoded", extra={"problem": defect.message, "lost": defect.lost})
        if len(fresh) > _MOST_LOGGED:
            log.warning("more events could not be decoded", extra={"count": len(fresh) - _MOST_LOGGED})
        if defects:
            more = f" (and {len(defects) - 1} more)" if len(defects) > 1 else ""
            self._health.report(DegradedReason.INVALID_EVENT, defects[0].message + more)
        else:
            self._health.clear(DegradedReason.INVALID_EVENT)
