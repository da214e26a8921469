"""A measured figure and what it should be."""

from collections.abc import Callable, Iterator
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
