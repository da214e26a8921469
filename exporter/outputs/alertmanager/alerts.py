"""The alerts that should be at Alertmanager, as a pure function of the lives, the configuration and the time.

Names, labels and texts are those of ``alerts/events.rules.yml``, without the labels of targets.
"""

import socket
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from exporter.config import Alertmanager
from exporter.config.match import Match
from exporter.model.events import Affected
from exporter.model.lifecycle import Life, Transition, TransitionRecord, phase_of
from exporter.model.messages import severity
from exporter.model.views import Snapshot
from exporter.model.wording import runbook
from exporter.timefmt import rfc3339

ACTIVE_SECONDS = 900.0  # longer than the reboot of a VM takes
# For so long an end is posted again after a restart: what was accepted is not stored, and an alert that has
# ended already is not notified again.
_REMEMBERED = timedelta(hours=24)
_MOST_IDS = 10  # of one life, the newest
_PHASES = (Transition.ADVISED, Transition.SCHEDULED, Transition.STARTED)
_PENDING = "ScheduledEventPending"
_NAMES = {Transition.STARTED: "ScheduledEventStarted"}
# Of each alert; the configuration may add others.
OWN_LABELS = ("alertname", "instance_name", "event_id", "event_type", "event_source", "phase", "severity")
_DESCRIPTIONS = {
    Transition.ADVISED: (
        "The VM may be affected later, or never. Azure recommends moving its work elsewhere."
    ),
    Transition.SCHEDULED: "It starts at NotBefore or later, and earlier only if it is approved.",
    Transition.STARTED: "Interruptions can follow one another until this alert resolves.",
}

Key = tuple[tuple[str, str], ...]


class Alert(msgspec.Struct, frozen=True):
    """An alert; ``ends`` is None while it is active."""

    labels: dict[str, str]
    annotations: dict[str, str]
    starts: datetime
    ends: datetime | None = None

    @property
    def key(self) -> Key:
        """The labels, by which Alertmanager tells alerts apart."""
        return tuple(sorted(self.labels.items()))

    def body(self, now: datetime, url: str, active: float = ACTIVE_SECONDS) -> dict[str, Any]:
        """Return a ``postableAlert`` of Alertmanager's API v2; ``url`` is that of the exporter's page.

        An active alert ends after ``active`` seconds unless it is posted again.
        """
        ends = max(self.ends or now + timedelta(seconds=active), self.starts)
        content: dict[str, Any] = {
            "labels": self.labels,
            "annotations": self.annotations,
            "startsAt": rfc3339(self.starts, milliseconds=True),
            "endsAt": rfc3339(ends, milliseconds=True),
        }
        return content | ({"generatorURL": url} if url else {})


def alerts(
    snapshot: Snapshot, settings: Alertmanager, now: datetime, runbook_url: str = ""
) -> dict[Key, Alert]:
    """Return the active alerts, and those whose end is known and less than a day ago, by their labels."""
    recent = (life for life in snapshot.past if life.ended is not None and now - life.ended < _REMEMBERED)
    by_labels: dict[Key, Alert] = {}
    for life in (*snapshot.current, *recent):
        if life.target is Affected.SELF:
            # Neither a reboot nor another name makes it another alert.
            name = life.instance or snapshot.instance or ""
            for alert in _of_life(life, name, settings, now):
                before = by_labels.get(alert.key)
                # Of an event that is listed again, the newest life counts.
                if before is None or _end(before) < _end(alert):
                    link = {"runbook_url": runbook(alert.labels["alertname"], runbook_url)}
                    by_labels[alert.key] = replace(alert, annotations=alert.annotations | link)
    return by_labels


def sample(transition: Transition, event_type: str, event_id: str, name: str, now: datetime) -> Alert:
    """Return an alert that is marked as a test."""
    labels = _labels(transition, name, event_id, event_type, "Platform")
    annotations = {
        "summary": f"(test) {event_type} of {name or socket.gethostname()} {transition.value}",
        "description": "notify-test sent this alert. It ends by itself after a minute.",
    }
    return Alert(labels, annotations, now)


def _end(alert: Alert) -> datetime:
    return alert.ends or datetime.max.replace(tzinfo=UTC)


def _of_life(life: Life, instance: str, settings: Alertmanager, now: datetime) -> Iterator[Alert]:
    event, records = life.event, [record for record in life.transitions if record.transition in _PHASES]
    phase = _phase(life) if _holds(settings.match, life, now) else None
    if phase is not None:
        begun = next((record.at for record in records if record.transition is phase), life.first_seen)
        yield _alert(life, TransitionRecord(phase, begun), event.event_id, instance, settings.labels)
    if not _holds(_without_time(settings.match), life, now):
        return
    for record, following in zip(records, [*(later.at for later in records[1:]), life.ended], strict=True):
        # The end of any other alert is known to whoever has posted it.
        if following is not None:
            for event_id in dict.fromkeys([*life.ids[-_MOST_IDS:], event.event_id]):
                over = _alert(life, record, event_id, instance, settings.labels)
                yield replace(over, ends=following)


def _phase(life: Life) -> Transition | None:
    """Return the phase that the event is in; None if it is over, or Scheduled again after it has started."""
    phase = phase_of(life.event)
    again = phase is Transition.SCHEDULED and life.has(Transition.STARTED)
    return None if life.ended is not None or again else phase


def _holds(match: Match, life: Life, now: datetime) -> bool:
    return match.holds(life.event, target=life.target, now=now)


def _without_time(match: Match) -> Match:
    """Return the conditions that do not change in the course of a life."""
    return replace(match, statuses=None, min_notice=None, max_notice=None, windows=None)


def _alert(
    life: Life, record: TransitionRecord, event_id: str, instance: str, more: Mapping[str, str]
) -> Alert:
    event, phase = life.event, record.transition
    labels = _labels(phase, instance, event_id, event.event_type, event.event_source)
    annotations = {
        "summary": f"{event.event_type} of {instance or socket.gethostname()} {_when(life, phase)}",
        "description": _DESCRIPTIONS[phase],
    }
    return Alert(dict(more) | labels, annotations, record.at)


def _labels(phase: Transition, name: str, event_id: str, event_type: str, source: str) -> dict[str, str]:
    alertname, grade = _NAMES.get(phase, _PENDING), severity(phase, event_type).value
    values = (alertname, name, event_id, event_type, source, phase.value, grade)
    # An empty label is none.
    return {label: value for label, value in zip(OWN_LABELS, values, strict=True) if value}


def _when(life: Life, phase: Transition) -> str:
    if phase is Transition.STARTED:
        return f"started at {_text(life.started)}" if life.started else "started at an unknown time"
    is_over = life.ended is not None or _phase(life) is not phase
    # Azure clears NotBefore at the start.
    at = life.event.not_before or (life.announced if is_over else None)
    return f"{phase.value}, {f'not before {_text(at)}' if at else 'time unknown'}"


def _text(at: datetime) -> str:
    return f"{at.astimezone(UTC).replace(microsecond=0, tzinfo=None)} UTC"
