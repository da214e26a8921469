"""Common wording of messages, page and terminal: times, durations, and the effects of events.

Effects are worded after Azure's pages on Scheduled Events ("Event type", "DurationInSeconds").
"""

import re
import shlex
import sys
from collections.abc import Sequence
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
VMS_SHOWN = 10  # the most names of VMs in a list, unless all matter
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_.:/=+-]+")
# What one of Windows' shells expands inside double quotes, or what ends them: in PowerShell typographic
# quotes do, and a backslash before the last quote makes it part of the word.
_EXPANDED = re.compile('["$`%!\u201c-\u201f]|\\\\$')
_RUNBOOKS = "https://github.com/azure-scheduled-events-exporter/azure-scheduled-events-exporter/blob/main/alerts/runbooks"
_REQUESTERS = {"Platform": "Azure (Platform)", "User": "a user of the subscription (User)"}


def runbook(alert: str, own_url: str) -> str:
    """Return the address of the runbook of an alert; ``own_url`` is where a company's own are, or ""."""
    return f"{own_url.rstrip('/')}/{alert}" if own_url else f"{_RUNBOOKS}/{alert}.md"


def command_line(*words: str, windows: bool = sys.platform == "win32") -> str:
    """Return a command to paste into a shell, in which every word is an argument and nothing else.

    On Windows that holds for PowerShell and for cmd.exe, which have no common way to write some characters:
    these become ``?``.
    """
    return " ".join(map(_windows_word, words)) if windows else shlex.join(words)


def _windows_word(word: str) -> str:
    return word if _PLAIN_WORD.fullmatch(word) else f'"{_EXPANDED.sub("?", word)}"'


def printable(text: str) -> str:
    """Return text with characters replaced that would control a terminal or reorder text."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 event``, ``2 events``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def names(items: Sequence[object], most: int = VMS_SHOWN) -> str:
    """Return the first names, and the number of the others: ``vm_0, vm_1 and 3 more``."""
    shown = ", ".join(map(str, items[:most]))
    hidden = len(items) - most
    return f"{shown} and {hidden} more" if hidden > 0 else shown


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


def roughly(span: timedelta) -> str:
    """Return a time span in one unit, rounded: ``19 s``, ``15 min``, ``3 h``, ``6 days``."""
    seconds = round(span.total_seconds())
    minutes, hours, days = (round(span / timedelta(**{unit: 1})) for unit in ("minutes", "hours", "days"))
    if seconds < 120:
        return f"{seconds} s"
    if minutes < 120:
        return f"{minutes} min"
    return f"{hours} h" if hours < 48 else f"{days} days"


def stamp(at: object) -> str:
    """Return an aware time in its own zone, ``2026-03-04 22:15:00 UTC``; see `utc` for anything else."""
    if isinstance(at, datetime):
        return f"{at.replace(tzinfo=None).isoformat(sep=' ', timespec='seconds')} {at.tzname()}"
    return "unknown" if at is None else str(at)


def utc(at: object) -> str:
    """Return an aware time in UTC, ``unknown`` for None, anything else unchanged."""
    return stamp(at.astimezone(UTC) if isinstance(at, datetime) else at)


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
