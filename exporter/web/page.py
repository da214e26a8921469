"""``/``: the landing page. Its data is prepared here; the markup is in ``page.html``.

Times are absolute, so that the page changes only when its content does; ``page.js`` adds the relative ones.
"""

from collections.abc import Sequence
from enum import StrEnum

from exporter import __version__
from exporter.health import Health
from exporter.model import wording as words
from exporter.model.causes import cause
from exporter.model.events import Affected, ScheduledEvent
from exporter.model.lifecycle import Life, Transition, phase_of
from exporter.model.messages import severity
from exporter.model.views import ApprovalView, Demonstration, Minute, Snapshot, Views, WorkView, event_view
from exporter.serving.http import Response
from exporter.serving.pages import html_page
from exporter.timefmt import rfc3339

# Events of this VM, and of others: the most urgent ones as cards, further ones collapsed.
CARDS_SHOWN = 3
PENDING_SHOWN = 100
PAST_SHOWN = 25
RESOURCES_SHOWN = 20
WORK_SHOWN = 12
_DASH = " \N{EN DASH} "
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


def landing(views: Views, demonstration: Demonstration | None) -> Response:
    snapshot, health = views.snapshot, views.health
    stalled = snapshot.stands_still(views.clock.now(), views.clock.speed)
    ended = snapshot.past[:PAST_SHOWN]
    current = {target: [life for life in snapshot.current if life.target is target] for target in Affected}
    shown = (life for lives in (*current.values(), ended) for life in lives[:PENDING_SHOWN])
    work = views.work({life.key for life in shown})

    def group(target: Affected) -> dict[str, object]:
        events = current[target]
        cards = [
            _card(life, views.approval(life)) | _work(work.get(life.key, ()))
            for life in events[:PENDING_SHOWN]
        ]
        return {
            "cards": cards[:CARDS_SHOWN],
            "collapsed": cards[CARDS_SHOWN:],
            "count": len(events),
            "more": len(events) - len(cards),
        }

    return html_page(
        "exporter.web",
        title=title(snapshot, stalled=stalled),
        demonstration=demonstration,
        out_of_service=views.out_of_service(),
        polls=_polls(views.polls),
        node=views.node,
        mood=mood(snapshot, health, stalled=stalled),
        stalled=stalled,
        snapshot=snapshot,
        problems=health.problems(),
        own=group(Affected.SELF),
        others=group(Affected.OTHER),
        past=[_past_row(life) | _work(work.get(life.key, ())) for life in ended],
        most_names=RESOURCES_SHOWN,
        version=__version__,
        rfc3339=rfc3339,
        utc=lambda at: f"{at:%a} {at.day} {at:%b, %H:%M:%S} UTC",
    )


def title(snapshot: Snapshot, *, stalled: bool) -> str:
    """Return the title of the browser tab, such as ``1 pending: Reboot Wed 22:12 UTC - vm-1``."""
    own = [t.event for t in snapshot.current if t.target is Affected.SELF]
    about = f"{len(own)} pending: {_gist(own[0])}" if own else "Nothing pending"
    if not snapshot.up or stalled:
        state = "BLIND" if snapshot.ready else "Waiting for Azure"
        about = f"{state}{_DASH}{about}" if own else state
    return f"{about}{_DASH}{snapshot.instance or 'Azure scheduled events'}"


def mood(snapshot: Snapshot, health: Health, *, stalled: bool) -> Mood:
    """Return the state of polling: blind or stalled is an alarm, waiting or degraded a warning."""
    if stalled or (not snapshot.up and (snapshot.ready or snapshot.last_error)):
        return Mood.ALARM
    return Mood.WARN if health.problems() or not snapshot.up else Mood.OK


def _gist(event: ScheduledEvent) -> str:
    """Return a short summary of an event, such as ``Reboot Wed 22:12 UTC``."""
    if event.is_started:
        return f"{event.event_type} under way"
    if not event.is_scheduled or event.not_before is None:
        return f"{event.event_type} {phase_of(event)}"
    return f"{event.event_type} {event.not_before:%a %H:%M} UTC"


def _approval(view: ApprovalView) -> str | None:
    """Return the state of the approval, such as ``Held (rule no-reboots): the rule holds it``."""
    if view.state is None:
        return None
    stand = _APPROVALS.get(view.state, view.state)
    rule = f" (rule {view.rule})" if view.rule else ""
    return f"{stand}{rule}: {view.reason}"


def _card(life: Life, approval: ApprovalView) -> dict[str, object]:
    event = life.event
    return {
        "event": event,
        "key": life.key,
        "own": life.target is Affected.SELF,
        "started": event.is_started,
        "severity": severity(phase_of(event), event.event_type),
        "since": life.started,
        "noticed": life.since(Transition.STARTED) or life.first_seen,
        "starts": event.not_before if event.is_scheduled else None,
        "effect": words.effect(event.event_type),
        "duration": words.impact(event.duration_seconds),
        "source": words.requester(event.event_source),
        "first_seen": life.first_seen,
        "approval": _approval(approval),
        "cause": cause(event_view(life)),
    }


def _work(done: Sequence[WorkView]) -> dict[str, object]:
    """Return the newest messages and hook runs, each with its state as text and as a CSS class."""

    def rows(kind: str) -> dict[str, object]:
        all_rows = [view for view in done if view.kind == kind and view.state]
        shown = [{"view": view, "mood": _MOODS.get(view.state, Mood.WARN)} for view in all_rows[-WORK_SHOWN:]]
        return {"rows": shown[::-1], "more": len(all_rows) - len(shown)}

    return {"messages": rows("message"), "hooks": rows("hook")}


def _polls(minutes: Sequence[Minute]) -> dict[str, object]:
    """Return the last hour's polls as a row of bars, and the number of failed ones with the last of them."""
    return {
        "bars": [
            Mood.ALARM if minute.failed else Mood.OK if minute.succeeded else None for minute in minutes
        ],
        "failed": sum(minute.failed for minute in minutes),
        "last": next((minute for minute in reversed(minutes) if minute.failed), None),
    }


def _past_row(life: Life) -> dict[str, object]:
    duration = "unknown"
    if life.impact_seconds is not None:
        duration = words.duration(life.impact_seconds)
        if life.paused_seconds is not None:
            duration += f"; VM paused {words.duration(life.paused_seconds)}"
    elif life.outcome == "cancelled" and not life.has(Transition.STARTED):
        duration = "did not start"
    return {
        "event": life.event,
        "id": life.ids[0],
        "ended": life.ended or life.first_seen,
        "outcome": _outcome(life),
        "duration": duration,
        "own": life.target is Affected.SELF,
    }


def _outcome(life: Life) -> str:
    if life.changed_to is not None:
        return f"Cancelled: its type changed to {life.changed_to}"
    if life.left and life.outcome is not Transition.VANISHED:
        return "Over for this VM; Azure lists it for other VMs only"
    return _OUTCOMES[life.outcome] if life.outcome else "Gone"
