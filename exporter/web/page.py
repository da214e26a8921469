"""``/``: the landing page. Its data is prepared here; the markup is in ``page.html``."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum

from exporter import __version__
from exporter.health import Health
from exporter.model import wording as words
from exporter.model.events import SCHEDULED, STARTED, ScheduledEvent, Target
from exporter.model.lifecycle import TrackedEvent, Transition
from exporter.model.messages import severity
from exporter.model.views import ApprovalView, Minute, Snapshot, WorkView
from exporter.serving import Response, html_page
from exporter.timefmt import rfc3339
from exporter.web.site import Site

PENDING_SHOWN = 50
PAST_SHOWN = 25
RESOURCES_SHOWN = 20
WORK_SHOWN = 12
_DASH = " \N{EN DASH} "
_PHASES = {SCHEDULED: Transition.SCHEDULED, STARTED: Transition.STARTED}
_OUTCOMES = {
    Transition.COMPLETED: "Completed",
    Transition.CANCELLED: "Cancelled before it started",
    Transition.VANISHED: "Gone unseen; outcome not known",
}
_APPROVALS = {
    "hold": "Held",
    "waiting": "Waits",
    "limited": "Held by the limit",
    "due": "Being approved",
    "dry_run": "Would be approved (dry run)",
    "approved": "Approved",
    "failed": "Approving fails",
}


class Mood(StrEnum):
    """The state of polling, also a CSS class."""

    OK = "ok"
    WARN = "warn"
    ALARM = "alarm"


_MOODS = {
    "delivered": Mood.OK,
    "succeeded": Mood.OK,
    "refused": Mood.ALARM,
    "expired": Mood.ALARM,
    "failed": Mood.ALARM,
    "timed_out": Mood.ALARM,
}


def landing(site: Site) -> Response:
    """Render the page."""
    snapshot, health, now = site.snapshot(), site.health, site.clock.now()
    current, ended = by_urgency(snapshot.current, now), snapshot.past[:PAST_SHOWN]
    work = site.work({tracked.key for tracked in (*current, *ended)})

    def group(target: Target) -> dict[str, object]:
        events = [tracked for tracked in current if tracked.target is target]
        cards = [
            _card(tracked, site.approval(tracked)) | _work(work.get(tracked.key, ()))
            for tracked in events[:PENDING_SHOWN]
        ]
        return {"count": len(events), "cards": cards}

    return html_page(
        "exporter.web",
        title=title(snapshot, now),
        notice=site.notice,
        out_of_service=site.in_service(),
        polls=_polls(site.polls()),
        mood=mood(snapshot, health, now),
        now=now,
        snapshot=snapshot,
        problems=health.problems(),
        own=group(Target.SELF),
        others=group(Target.OTHER),
        past=[_past_row(tracked) | _work(work.get(tracked.key, ())) for tracked in ended],
        most_names=RESOURCES_SHOWN,
        version=__version__,
        rfc3339=rfc3339,
        utc=lambda at: f"{at:%a} {at.day} {at:%b, %H:%M:%S} UTC",
        counted=lambda at, mode: _counted((now - at).total_seconds(), mode),
    )


def title(snapshot: Snapshot, now: datetime) -> str:
    """Return the title of the browser tab, such as ``1 pending: Reboot in 12 min - vm-1``."""
    own = [t.event for t in by_urgency(snapshot.current, now) if t.target is Target.SELF]
    about = f"{len(own)} pending: {_gist(own[0], now)}" if own else "Nothing pending"
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


def _gist(event: ScheduledEvent, now: datetime) -> str:
    """Return a short summary of an event, such as ``Reboot in 12 min``."""
    if event.event_status == STARTED:
        return f"{event.event_type} under way"
    if event.event_status != SCHEDULED or event.not_before is None:
        return f"{event.event_type} {event.event_status.lower()}"
    if event.not_before <= now:
        return f"{event.event_type} any moment now"
    return f"{event.event_type} {words.relative(event.not_before, now)}"


def _approval(view: ApprovalView) -> str:
    """Return the state of the approval, such as ``Held (rule no-reboots): the rule holds it``."""
    stand = _APPROVALS.get(view.state or "", view.state or "")
    rule = f" (rule {view.rule})" if view.rule else ""
    return f"{stand}{rule}: {view.reason}"


def _card(tracked: TrackedEvent, approval: ApprovalView) -> dict[str, object]:
    event = tracked.event
    return {
        "event": event,
        "started": event.event_status == STARTED,
        "severity": severity(_PHASES.get(event.event_status, Transition.ADVISED), event.event_type),
        "since": tracked.started,
        "noticed": tracked.since(Transition.STARTED) or tracked.first_seen,
        "starts": event.not_before if event.event_status == SCHEDULED else None,
        "effect": words.effect(event.event_type),
        "duration": words.impact(event.duration_seconds),
        "source": words.requester(event.event_source),
        "first_seen": tracked.first_seen,
        "approval": _approval(approval) if approval.state else None,
    }


def _work(done: Sequence[WorkView]) -> dict[str, object]:
    """Return the newest messages and hook runs, each with its state as text and as a CSS class."""

    def rows(kind: str) -> dict[str, object]:
        all_rows = [one for one in done if one.kind == kind and one.state]
        shown = [{"view": one, "mood": _MOODS.get(one.state, Mood.WARN)} for one in all_rows[-WORK_SHOWN:]]
        return {"rows": shown[::-1], "more": len(all_rows) - len(shown)}

    return {"messages": rows("message"), "hooks": rows("hook")}


def _polls(minutes: Sequence[Minute]) -> dict[str, object]:
    """Return the last hour's polls as a row of bars, and as text."""
    bars = [Mood.ALARM if one.failed else Mood.OK if one.succeeded else None for one in minutes]
    failed = sum(one.failed for one in minutes)
    last = next((one for one in reversed(minutes) if one.failed), None)
    return {
        "bars": bars,
        "count": sum(one.succeeded for one in minutes) + failed,
        "failed": failed,
        "last": last,
    }


def _past_row(tracked: TrackedEvent) -> dict[str, object]:
    duration = "unknown"
    if tracked.impact_seconds is not None:
        duration = words.duration(tracked.impact_seconds)
        if tracked.paused_seconds is not None:
            duration += f"; VM paused {words.duration(tracked.paused_seconds)}"
    elif tracked.outcome == "cancelled":
        duration = "did not start"
    return {
        "event": tracked.event,
        "id": tracked.ids[0],
        "ended": tracked.ended or tracked.first_seen,
        "outcome": _OUTCOMES[tracked.outcome] if tracked.outcome else "Gone",
        "duration": duration,
        "own": tracked.target is Target.SELF,
    }


def _counted(gone: float, mode: str) -> str:
    """Return a remaining or elapsed time as text, in the wording of ``page.js``, which updates it."""
    if mode == "in":
        return f"in {words.duration(-gone)}" if gone < 0 else "any moment now"
    return f"for {words.duration(gone)}" if mode == "for" else f"{words.duration(gone)} ago"
