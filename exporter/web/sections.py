"""The page's parts: the state of the watch, what is pending, what is past. All text is escaped here."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from html import escape

from exporter.events import SCHEDULED, STARTED, Target
from exporter.health import Health
from exporter.lifecycle import TrackedEvent, Transition
from exporter.snapshot import Snapshot
from exporter.times import rfc3339
from exporter.views import ApprovalView
from exporter.web import words

PENDING_SHOWN = 50
PAST_SHOWN = 25
RESOURCES_SHOWN = 20


class Mood(StrEnum):
    """How worried to be about the watch itself; a class in the style sheet."""

    OK = "ok"
    WARN = "warn"
    ALARM = "alarm"


Approval = Callable[[TrackedEvent], ApprovalView]

_SIGNS = {Mood.OK: "✓", Mood.WARN: "!", Mood.ALARM: "✗"}


def mood(snapshot: Snapshot, health: Health, now: datetime) -> Mood:
    """Tell whether the watch works: blind is an alarm, not yet seeing or an untidy house a warning."""
    if snapshot.stands_still(now) or (not snapshot.up and (snapshot.ready or snapshot.last_error)):
        return Mood.ALARM
    return Mood.WARN if health.problems() or not snapshot.up else Mood.OK


def main(snapshot: Snapshot, health: Health, now: datetime, approval: Approval) -> str:
    """Render all that changes; ``approval`` tells how approving an event stands."""
    current = by_urgency(snapshot.current, now)
    own = [tracked for tracked in current if tracked.target is Target.SELF]
    others = [tracked for tracked in current if tracked.target is Target.OTHER]
    name = f"<bdi>{escape(snapshot.instance)}</bdi>" if snapshot.instance else "this VM"
    return "\n".join(
        (
            f'<main id="main" data-now="{rfc3339(now, milliseconds=True)}">',
            f"<h1>Scheduled events of {name}</h1>",
            _watch(snapshot, health, now),
            _pending("This VM", "own", _cards(own, now, approval), _nothing(snapshot, "this VM")),
            _pending("Other VMs", "others", _cards(others, now, approval), _nothing(snapshot, "other VMs")),
            _past(snapshot, now),
            "</main>",
        )
    )


def by_urgency(events: Iterable[TrackedEvent], now: datetime) -> list[TrackedEvent]:
    """Sort: what has started first, then what starts soonest; what has no time at all stands last."""

    def urgency(tracked: TrackedEvent) -> tuple[bool, float]:
        at = tracked.event.not_before
        left = (at - now).total_seconds() if at else float("inf")
        return tracked.event.event_status != STARTED, left

    return sorted(events, key=urgency)


def _watch(snapshot: Snapshot, health: Health, now: datetime) -> str:
    state = mood(snapshot, health, now)
    if snapshot.stands_still(now):
        head = f"Standing still: Azure has not been asked{_silence(snapshot, now)}"
        text = f"{_answered(snapshot, now)}. The exporter hangs; its log may say why. Restart it."
    elif snapshot.up:
        head = "Watching" if state is Mood.OK else "Watching, but not all is well"
        text = f"{_answered(snapshot, now)}."
    elif snapshot.ready:
        head = f"Blind: no answer from Azure{_silence(snapshot, now)}"
        text = f"{_answered(snapshot, now)}. What is shown below was known then, and may have changed since."
    else:
        head = "Not watching yet" if state is Mood.ALARM else "Waiting for Azure's first answer"
        text = "The first answer can take up to two minutes."
        if snapshot.last_success:
            text += f" Before the restart, {_answered(snapshot, now)}; what is shown below is from then."
    lines = [f"<p>{text}</p>"]
    if snapshot.last_error:
        lines.append(f'<p>Last error: <bdi class="said">{escape(snapshot.last_error)}</bdi></p>')
    problems = health.problems()
    if problems:
        items = "".join(
            f"<li><strong>{escape(p.trouble.replace('_', ' '))}</strong>: <bdi>{escape(p.message)}</bdi> "
            f"<small>since {_clock(p.since)}</small></li>"
            for p in problems
        )
        lines.append(f"<ul>{items}</ul>")
    return (
        f'<section id="watch" class="watch {state}" aria-labelledby="watch-head">'
        f'<span class="sign" aria-hidden="true">{_SIGNS[state]}</span>'
        f'<div><h2 id="watch-head">{head}</h2>{"".join(lines)}</div></section>'
    )


def _nothing(snapshot: Snapshot, whom: str) -> str:
    if snapshot.up:
        return f"Nothing is planned for {whom}."
    return f"Nothing was planned for {whom} when Azure last answered." if snapshot.ready else "Not known yet."


def _cards(events: Sequence[TrackedEvent], now: datetime, approval: Approval) -> tuple[int, str]:
    """Give the number of events, and the cards of the first of them."""
    shown = events[:PENDING_SHOWN]
    return len(events), "\n".join(_card(tracked, now, approval(tracked)) for tracked in shown)


def _pending(heading: str, name: str, events: tuple[int, str], nothing: str) -> str:
    count, cards = events
    number = f' <span class="number">{count}</span>' if count else ""
    return (
        f'<section id="{name}" aria-labelledby="{name}-head"><h2 id="{name}-head">{heading}{number}</h2>'
        f"{cards or f'<p class=nothing>{nothing}</p>'}{_more(count - PENDING_SHOWN)}</section>"
    )


def _card(tracked: TrackedEvent, now: datetime, approval: ApprovalView) -> str:
    event = tracked.event
    status = escape(event.event_status)
    approach = "started" if event.event_status == STARTED else "scheduled"
    rows = [
        ("Expected duration", escape(words.expected_duration(event))),
        ("Asked for by", escape(words.source(event))),
        ("Affects", _resources(event.resources)),
        ("First seen", _clock(tracked.first_seen)),
        ("Event id", f"<code>{escape(event.event_id)}</code>"),
    ]
    if event.description:
        rows.insert(0, ("Azure says", f"<bdi>{escape(event.description)}</bdi>"))
    if approval.state:
        rows.insert(-1, ("Approval", escape(words.approval(approval))))
    facts = "".join(f"<div><dt>{label}</dt><dd>{value}</dd></div>" for label, value in rows)
    return (
        f'<article class="event {approach}">'
        f'<h3><bdi>{escape(event.event_type)}</bdi> <span class="badge">{status}</span></h3>'
        f'<p class="when">{_when(tracked, now)}</p><p>{escape(words.effect(event))}</p>'
        f"<dl>{facts}</dl></article>"
    )


def _when(tracked: TrackedEvent, now: datetime) -> str:
    event = tracked.event
    if event.event_status == STARTED:
        since = tracked.started
        if since is None:
            noticed = tracked.since(Transition.STARTED) or tracked.first_seen
            return f"Already under way at {_clock(noticed)}"
        elapsed = words.span((now - since).total_seconds())
        return f"Under way {_count(since, 'for', f'for {elapsed}')} <small>since {_clock(since)}</small>"
    if event.event_status != SCHEDULED or event.not_before is None:
        return "Azure has not said when."
    left = (event.not_before - now).total_seconds()
    shown = f"in {words.span(left)}" if left > 0 else "any moment now"
    return (
        f"Starts {_count(event.not_before, 'in', shown)} <small>not before {_clock(event.not_before)}</small>"
    )


def _resources(names: Sequence[str]) -> str:
    if not names:
        return "not said; taken as this VM"
    shown = ", ".join(f"<bdi>{escape(name)}</bdi>" for name in names[:RESOURCES_SHOWN])
    hidden = len(names) - RESOURCES_SHOWN
    return f"{shown} and {hidden} more" if hidden > 0 else shown


def _past(snapshot: Snapshot, now: datetime) -> str:
    rows = "\n".join(_past_row(tracked, now) for tracked in snapshot.past[:PAST_SHOWN])
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("Ended", "What", "Outcome", "Took", "VMs"))
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    return (
        '<section id="past" aria-labelledby="past-head">'
        '<h2 id="past-head">What happened before <small>in 90 days</small></h2>'
        f"{table if rows else '<p class=nothing>Nothing that this exporter has seen in 90 days.</p>'}"
        f"{_more(len(snapshot.past) - PAST_SHOWN)}</section>"
    )


def _past_row(tracked: TrackedEvent, now: datetime) -> str:
    event = tracked.event
    ended = tracked.ended or tracked.first_seen
    took = "not seen"
    if tracked.impact_seconds is not None:
        took = words.length(tracked.impact_seconds)
    elif tracked.outcome == "cancelled":
        took = "nothing"
    whom = "this VM: " if tracked.target is Target.SELF else ""
    cells = (
        ("Ended", f"{_clock(ended)} <small>{_ago(ended, now)}</small>"),
        ("What", f"<bdi>{escape(event.event_type)}</bdi> <code>{escape(tracked.ids[0])}</code>"),
        ("Outcome", escape(words.outcome(tracked))),
        ("Took", took),
        ("VMs", f"<span>{whom}{_resources(event.resources)}</span>"),
    )
    return "<tr>" + "".join(f'<td data-head="{head}">{cell}</td>' for head, cell in cells) + "</tr>"


def _more(number: int) -> str:
    return f'<p>… and {number} more in <a href="api/v1/events">api/v1/events</a></p>' if number > 0 else ""


def _silence(snapshot: Snapshot, now: datetime) -> str:
    at = snapshot.last_success
    return f" {_count(at, 'for', f'for {words.span((now - at).total_seconds())}')}" if at else ""


def _answered(snapshot: Snapshot, now: datetime) -> str:
    at = snapshot.last_success
    return f"Azure answered {_ago(at, now)}, at {_clock(at)}" if at else "Azure has not answered yet"


def _ago(at: datetime, now: datetime) -> str:
    return _count(at, "ago", f"{words.span((now - at).total_seconds())} ago")


def _clock(at: datetime) -> str:
    """Write a time in UTC; the script adds the reader's own."""
    return f'<time datetime="{rfc3339(at)}" data-local>{at:%a} {at.day} {at:%b, %H:%M:%S} UTC</time>'


def _count(at: datetime, mode: str, shown: str) -> str:
    """Write a time left or gone, which the script keeps counting: mode ``in``, ``for`` or ``ago``."""
    return f'<time datetime="{rfc3339(at)}" data-count="{mode}">{shown}</time>'
