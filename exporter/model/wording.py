"""Common wording of messages, page and terminal: times, durations, and the effects of events.

Effects are worded after Azure's pages on Scheduled Events ("Event type", "DurationInSeconds").
"""

from datetime import UTC, datetime, timedelta

_EFFECTS = {
    "Freeze": "The VM pauses. CPU and network may be suspended; memory and open files are not affected.",
    "Reboot": "The VM reboots. Non-persistent memory is lost.",
    "Redeploy": "The VM moves to another host. Ephemeral disks are lost.",
    "Preempt": "Azure evicts this Spot VM. Ephemeral disks are lost.",
    "Terminate": "The VM is deleted.",
    "SpotRebalanceRecommendation": "Azure may evict this Spot VM soon. Nothing is scheduled yet.",
}
_UNKNOWN_EFFECT = "This exporter does not know this type of event; see Azure's documentation."
_REQUESTERS = {"Platform": "Azure (Platform)", "User": "a user of the subscription (User)"}


def printable(text: str) -> str:
    """Return text with characters replaced that would control a terminal or reorder text."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 event``, ``2 events``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float | None) -> str:
    """Return a duration in its two largest units, rounded: ``45 s``, ``12 min 5 s``, ``3 h``, ``2 days 3 h``.

    None is ``unknown``. The page's script formats durations in the same way.
    """
    if seconds is None:
        return "unknown"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return _two(whole // 60, "min", whole % 60, "s")
    minutes = round(whole / 60)
    if minutes < 24 * 60:
        return _two(minutes // 60, "h", minutes % 60, "min")
    hours = round(whole / 3600)
    return _two(hours // 24, "day" if hours < 48 else "days", hours % 24, "h")


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large} {large_unit} {small} {small_unit}" if small else f"{large} {large_unit}"


def relative(at: datetime | None, now: datetime) -> str:
    """Return a time relative to ``now``: ``in 14 min``, ``3 s ago``, ``now``; ``unknown`` for None."""
    if at is None:
        return "unknown"
    ahead = (at - now).total_seconds()
    if abs(ahead) <= 0.5:
        return "now"
    return f"in {duration(ahead)}" if ahead > 0 else f"{duration(-ahead)} ago"


def roughly(ahead: timedelta) -> str:
    """Return a time span in one unit, without seconds: ``under 1 min``, ``15 min``, ``3 h``, ``6 days``."""
    minutes, hours, days = (round(ahead / timedelta(**{unit: 1})) for unit in ("minutes", "hours", "days"))
    if minutes < 1:
        return "under 1 min"
    if minutes < 120:
        return f"{minutes} min"
    return f"{hours} h" if hours < 48 else f"{days} days"


def utc(at: object) -> str:
    """Return an aware time as ``2026-03-04 22:15:00 UTC``, ``unknown`` for None, anything else unchanged."""
    if isinstance(at, datetime):
        return at.astimezone(UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", " UTC")
    return "unknown" if at is None else str(at)


def effect(event_type: str) -> str:
    """Return what an event of a type does to a VM."""
    return _EFFECTS.get(event_type, _UNKNOWN_EFFECT)


def impact(seconds: int | None) -> str:
    """Return how long Azure expects the interruption to last."""
    if seconds is None:
        return "unknown duration"
    return f"about {duration(seconds)}" if seconds else "no interruption"


def requester(source: str) -> str:
    return _REQUESTERS.get(source, source or "unknown")
