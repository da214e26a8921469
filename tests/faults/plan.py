"""Which faults come when: an endless plan that follows from the seed alone."""

import random
from collections.abc import Callable, Iterator

import msgspec

from tests.faults.azure import FAULTS

# The last part of the time passes without restarts, so that growth shows.
_KINDS = {
    "imds": 9.0,
    "receiver": 9.0,
    "traces": 4.0,
    "clock": 3.0,
    "disk": 2.5,
    "pause": 2.5,
    "kill": 2.5,
    "stop": 1.5,
    "reload": 2.0,
    "bad reload": 1.2,
    "log": 0.5,
}
RESTARTS = ("kill", "stop")
MOODS: tuple[int | str, ...] = (500, 503, 404, 429, "hang", "drip", "lose", "garbage", "reset")
SPOILT = (
    "imds: [not, {closed",
    "nonsense: 1",
    "imds: {poll_interval: never}",
    "approval: {mode: perhaps}",
    "state: {directory: /nowhere/else}",
    "notifications: {targets: [{name: x, url: 'no-such-scheme://x'}]}",
    "tracing: {enabled: 7}\n\x00",
)


class Fault(msgspec.Struct, frozen=True):
    """A fault: ``at`` and ``seconds`` are seconds of the plan, ``value`` is what kind it is of its kind."""

    at: float
    kind: str
    seconds: float
    value: int | float | str


def faults(seed: int | str) -> Iterator[Fault]:
    """Return the faults in their order."""
    chance = random.Random(f"{seed} faults")
    at = 2.0
    while True:
        at += chance.expovariate(1.6)
        kind = chance.choices(list(_KINDS), list(_KINDS.values()))[0]
        yield Fault(at, kind, chance.uniform(0.2, 2.0), _value(kind, chance))


def changes(seed: int | str) -> Iterator[float]:
    """Return the times at which the truth changes."""
    chance = random.Random(f"{seed} changes")
    at = 0.5
    while True:
        yield at
        at += chance.choice((0.05, 0.2, 0.4, 0.5, 0.7))


def quiet_points(seed: int | str) -> Iterator[float]:
    """Return the times at which everything is to be well, and is looked at."""
    chance = random.Random(f"{seed} quiet")
    at = 3.0
    while True:
        yield at
        at += chance.uniform(10, 18)


def _value(kind: str, chance: random.Random) -> int | float | str:
    kinds: dict[str, Callable[[], int | float | str]] = {
        "imds": lambda: chance.choice(FAULTS),
        "receiver": lambda: f"{chance.randrange(2)} {chance.choice(MOODS)}",
        "traces": lambda: chance.choice((*MOODS, 400)),
        "clock": lambda: chance.choice((0, chance.uniform(-11, 11) * 3600)),
        "disk": lambda: chance.choice((4096, 8192, 20000, 60000)),
        "reload": lambda: chance.choice(("some", "none", "all", "all", "all")),
        "bad reload": lambda: chance.randrange(len(SPOILT)),
    }
    return kinds[kind]() if kind in kinds else 0
