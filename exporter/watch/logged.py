"""The log lines about events and their jobs."""

import logging
from collections.abc import Sequence

from exporter.metrics import Metrics
from exporter.model.events import trace_id
from exporter.model.lifecycle import Life, Occurrence
from exporter.model.messages import Outcome
from exporter.state.store import Store

log = logging.getLogger(__name__)


def started_facts(lives: Sequence[Life]) -> dict[str, object]:
    """Return the fields of a line about a pause during these events."""
    return {
        "event_ids": [life.event.event_id for life in lives],
        "event_types": [life.event.event_type for life in lives],
        "announced_seconds": [life.event.duration_seconds for life in lives],
    }


def log_transition(occurrence: Occurrence, instance: str | None) -> None:
    event = occurrence.life.event
    facts = {
        "transition": occurrence.transition.value,
        "event_id": event.event_id,
        "trace_id": trace_id(occurrence.life.ids[0]),
        "event_type": event.event_type,
        "event_status": event.event_status,
        "event_source": event.event_source,
        "resource_type": event.resource_type,
        "target": occurrence.life.target.value,
        "instance": occurrence.life.instance or instance,
        "resources": event.resources,
        "not_before": event.not_before,
        "duration_seconds": event.duration_seconds,
        "description": event.description,
        "first_seen": occurrence.life.first_seen,
        "started": occurrence.life.started,
        "impact_seconds": None if occurrence.impact is None else occurrence.impact.total_seconds(),
    }
    if occurrence.life.changed_to is not None:
        facts["changed_to"] = occurrence.life.changed_to
    if occurrence.detail:
        facts["detail"] = occurrence.detail
    for change in occurrence.changes:
        facts[f"old_{change.field}"] = change.old
    log.info("transition", extra=facts)


def note_dropped(store: Store, metrics: Metrics) -> None:
    """Log and count the jobs that had to make room for newer ones."""
    for target, count in store.outbox.take_dropped().items():
        metrics.given_up(target, Outcome.EXPIRED, count)
        log.warning("messages dropped: too many are waiting", extra={"target": target, "count": count})
    for hook, count in store.hook_jobs.take_dropped().items():
        metrics.hooks_dropped(hook, count)
        log.warning("hook runs dropped: too many are waiting", extra={"hook": hook, "count": count})
