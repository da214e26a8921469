"""The bounds of the past: how much of it is kept, and for how long."""

from datetime import datetime

from exporter.model.lifecycle import HISTORY, Life

MOST_PAST_BYTES = 2 * 2**20
_TRANSITION_BYTES = 60


def surplus_of(past: dict[str, Life], now: datetime) -> list[str]:
    """Return the keys of past lives that are too old, or too much; ``past`` is oldest first."""
    oldest = now - HISTORY
    room = MOST_PAST_BYTES
    surplus = []
    for key, life in reversed(past.items()):
        names = sum(map(len, (*life.ids, life.instance or "")))
        room -= life.event.size + names + _TRANSITION_BYTES * len(life.transitions)
        if room < 0 or (life.ended is not None and life.ended < oldest):
            surplus.append(key)
    return surplus
