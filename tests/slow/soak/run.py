"""The long run: random worlds, one after the other, until the time is over.

SOAK_SECONDS=300 SOAK_SEED=1 python -m tests.slow.soak.run
"""

import logging
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.end_to_end.program import eventually
from tests.slow.soak.checks import Model, check
from tests.slow.soak.world import World, threads

_ROUNDS = 60
_QUIET_EVERY = 10


def one(folder: Path, seed: int | str, rounds: int = _ROUNDS) -> Counter[str]:
    """Play a world, and return how often each thing happened.

    Raises:
        AssertionError: something was lost, repeated, forbidden or left behind.
    """
    before = threads()
    with pytest.MonkeyPatch.context() as patch:
        world, model = World(folder, patch, seed), Model()
        try:
            for number in range(rounds):
                world.step()
                if number % _QUIET_EVERY == _QUIET_EVERY - 1:
                    world.quiet()
                    check(world, model)
        finally:
            world.bench.close()
    # The web server's stop does not wait for the thread that accepts connections.
    eventually(lambda: threads() == before)
    world.counts["polls"] = len(world.served)
    world.counts["transitions"] = model.told().total()
    return world.counts


def main() -> int:
    logging.disable()
    until = time.monotonic() + float(os.environ.get("SOAK_SECONDS", "300"))
    seed, number, counts = os.environ.get("SOAK_SEED", "1"), 0, Counter[str]()
    while time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            try:
                counts += one(Path(folder), f"{seed}-{number}")
            except AssertionError:
                sys.stdout.write(f"world {seed}-{number}\n")
                raise
        number += 1
    sys.stdout.write(f"{number} worlds, seed {seed}; all agrees\n")
    for kind, count in sorted(counts.items()):
        sys.stdout.write(f"{count:8} {kind}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
