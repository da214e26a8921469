"""The bench, and the tests of the whole program on it."""

from collections.abc import Callable

from tests.bench.bench import VM, Bench

__all__ = ["VM", "Bench", "Build"]

# The type of the fixture `build`.
Build = Callable[..., Bench]
