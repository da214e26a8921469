"""The bounds of the past: how many lives of events are kept after their end, and for how long."""

from datetime import datetime

from exporter.model.lifecycle import HISTORY, Life

MOST_PAST = 10_000
MOST_PAST_BYTES = 2 * 2**20
_TRANSITION_BYTES = 60


def surplus_of(past: dict[str, Life], now: datetime) -> list[str]:
    """Return the keys of past lives that are too old, or too many; ``past`` and they are oldest first."""
    oldest = now - HISTORY
    room = MOST_PAST_BYTES
    surplus = []
    for number, (key, life) in enumerate(reversed(past.items())):
        names = sum(map(len, (*life.ids, life.instance or "")))
        room -= life.event.size + names + _TRANSITION_BYTES * len(life.transitions)
        if number >= MOST_PAST or room < 0 or (life.ended is not None and life.ended < oldest):
            surplus.append(key)
    surplus.reverse()
    return surplus
