"""A measured figure and what it should be."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple


class Figure(NamedTuple):
    """One row of the table: ``value`` and ``aim`` are in ``unit``; no aim where it is for information."""

    name: str
    value: float
    unit: str
    aim: float | None = None

    @property
    def met(self) -> bool:
        """Return whether the value is as small as it should be."""
        return self.aim is None or self.value <= self.aim


Benchmark = Callable[[], Iterator[Figure]]


def paired(name: str, found: Mapping[str, Sequence[float]], unit: str, aim: float) -> Iterator[Figure]:
    """Yield medians, and those of the exporter's ratios to the others; ``aim`` is for that to the floor.

    Values at the same position were measured at the same time: a busy machine affects them alike.
    """
    for contestant, values in found.items():
        yield Figure(f"{name}, {contestant}", statistics.median(values), unit)
    own = found["exporter"]
    for contestant, values in found.items():
        if contestant != "exporter":
            ratio = statistics.median(a / b for a, b in zip(own, values, strict=True))
            yield Figure(f"{name}, to {contestant}", ratio, "times", aim if contestant == "floor" else None)
