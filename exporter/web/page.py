"""``/``: the landing page for people. The data are prepared here; the markup is in ``page.html``."""

from collections.abc import Callable, Iterable
from datetime import datetime
from enum import StrEnum

from exporter import __version__
from exporter.health import Health
from exporter.model import wording as words
from exporter.model.events import SCHEDULED, STARTED, Target
from exporter.model.lifecycle import TrackedEvent, Transition
from exporter.model.snapshot import Snapshot
from exporter.model.views import ApprovalView
from exporter.timefmt import rfc3339
from exporter.web import html
from exporter.web.http import Response

PENDING_SHOWN = 50
PAST_SHOWN = 25
RESOURCES_SHOWN = 20
_DASH = " \N{EN DASH} "

Approval = Callable[[TrackedEvent], ApprovalView]


class Mood(StrEnum):
    """The state of polling; a class in the style sheet."""

    OK = "ok"
    WARN = "warn"
    ALARM = "alarm"


def landing(snapshot: Snapshot, health: Health, now: datetime, approval: Approval) -> Response:
    """Render the page as of ``now``."""
    current = by_urgency(snapshot.current, now)

    def group(target: Target) -> dict[str, object]:
        events = [tracked for tracked in current if tracked.target is target]
        cards = [_card(tracked, approval(tracked)) for tracked in events[:PENDING_SHOWN]]
        return {"count": len(events), "cards": cards}

    return html.render(
        "exporter.web",
        title=title(snapshot, now),
        mood=mood(snapshot, health, now),
        now=now,
        snapshot=snapshot,
        problems=health.problems(),
        own=group(Target.SELF),
        others=group(Target.OTHER),
        past=[_past_row(tracked) for tracked in snapshot.past[:PAST_SHOWN]],
        most_names=RESOURCES_SHOWN,
        version=__version__,
        rfc3339=rfc3339,
        utc=lambda at: f"{at:%a} {at.day} {at:%b, %H:%M:%S} UTC",
        counted=lambda at, mode: _counted((now - at).total_seconds(), mode),
    )


def title(snapshot: Snapshot, now: datetime) -> str:
    """Return the title of the browser tab, a summary: ``1 pending: Reboot in 12 min - vm-1``."""
    own = [t.event for t in by_urgency(snapshot.current, now) if t.target is Target.SELF]
    about = f"{len(own)} pending: {words.gist(own[0], now)}" if own else "Nothing pending"
    if not snapshot.up or snapshot.stands_still(now):
        state = "BLIND" if snapshot.ready else "Waiting for Azure"
        about = f"{state}{_DASH}{about}" if own else state
    return f"{about}{_DASH}{snapshot.instance or 'Azure scheduled events'}"


def mood(snapshot: Snapshot, health: Health, now: datetime) -> Mood:
    """Return the state of polling: blind or stalled is an alarm, waiting or degraded a warning."""
    if snapshot.stands_still(now) or (not snapshot.up and (snapshot.ready or snapshot.last_error)):
        return Mood.ALARM
    return Mood.WARN if health.problems() or not snapshot.up else Mood.OK


def by_urgency(events: Iterable[TrackedEvent], now: datetime) -> list[TrackedEvent]:
    """Sort events: started ones first, then by start time; those without one come last."""

    def urgency(tracked: TrackedEvent) -> tuple[bool, float]:
        at = tracked.event.not_before
        left = (at - now).total_seconds() if at else float("inf")
        return tracked.event.event_status != STARTED, left

    return sorted(events, key=urgency)


def _card(tracked: TrackedEvent, approval: ApprovalView) -> dict[str, object]:
    event = tracked.event
    return {
        "event": event,
        "started": event.event_status == STARTED,
        "since": tracked.started,
        "noticed": tracked.since(Transition.STARTED) or tracked.first_seen,
        "starts": event.not_before if event.event_status == SCHEDULED else None,
        "effect": words.effect(event),
        "duration": words.expected_duration(event),
        "source": words.source(event),
        "first_seen": tracked.first_seen,
        "approval": words.approval(approval) if approval.state else None,
    }


def _past_row(tracked: TrackedEvent) -> dict[str, object]:
    duration = "unknown"
    if tracked.impact_seconds is not None:
        duration = words.length(tracked.impact_seconds)
    elif tracked.outcome == "cancelled":
        duration = "did not start"
    return {
        "event": tracked.event,
        "id": tracked.ids[0],
        "ended": tracked.ended or tracked.first_seen,
        "outcome": words.outcome(tracked),
        "duration": duration,
        "own": tracked.target is Target.SELF,
    }


def _counted(gone: float, mode: str) -> str:
    """Return a remaining or elapsed time as text, worded as in ``page.js``, which keeps it up to date."""
    if mode == "in":
        return f"in {words.span(-gone)}" if gone < 0 else "any moment now"
    return f"for {words.span(gone)}" if mode == "for" else f"{words.span(gone)} ago"
