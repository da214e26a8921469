"""The long search: ``make fuzz``, for FUZZ_SECONDS, from FUZZ_SEED where one is given.

An input that breaks a promise is written to the corpus, where it stays as a test once the cause is mended.
"""

import gc
import hashlib
import os
import random
import sys
import time

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.end_to_end.program import resident
from tests.faults.fuzz_inputs import CORPUS, SEARCHED, corpus, inputs
from tests.faults.fuzz_probes import PROBES

SECONDS = 300.0
EXAMPLES = 200
GROWTH_MIB = 8


class BrokenPromiseError(Exception):
    """A promise is broken: by this input, for this reason."""


def search(name: str, number: int, until: float) -> int:
    """Try inputs made from one seed; return how many.

    Raises:
        BrokenPromiseError: one of them broke a promise.
    """
    tried = 0
    last = b""

    @seed(number)
    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs(name))
    def probe(content: bytes) -> None:
        nonlocal tried, last
        if time.monotonic() > until:
            return
        tried, last = tried + 1, content
        PROBES[name](content)

    try:
        probe()
    except Exception as error:
        # Hypothesis ends with the smallest input that it found.
        raise BrokenPromiseError(_keep(name, last, error)) from error
    return tried


def repeat_corpus(name: str) -> None:
    """Try the kept inputs again and again.

    Raises:
        BrokenPromiseError: they leave memory behind, although caches are full.
    """
    for turn in range(4):
        if turn == 1:
            gc.collect()
            before = resident()
        for _, content in corpus(name):
            PROBES[name](content)
    gc.collect()
    if (growth := resident() - before) > GROWTH_MIB:
        raise BrokenPromiseError(
            f"{name}: {growth:.1f} MiB more after the kept inputs were tried three times"
        )


def _keep(name: str, content: bytes, error: Exception) -> str:
    file = CORPUS / name / f"found-{hashlib.sha256(content).hexdigest()[:12]}"
    file.write_bytes(content)
    return f"{file}: {type(error).__name__}: {error}"


def say(line: str) -> None:
    """Write a line to standard output at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Search until the time is over; status 1 where a promise is broken."""
    seconds = float(os.environ.get("FUZZ_SECONDS") or SECONDS)
    first = int(os.environ.get("FUZZ_SEED") or random.SystemRandom().randrange(2**32))
    say(f"FUZZ_SEED={first} FUZZ_SECONDS={seconds:g}")
    number, tried = first, dict.fromkeys(SEARCHED, 0)
    try:
        for name in PROBES:
            repeat_corpus(name)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for name in SEARCHED:
                tried[name] += search(name, number, until)
            number += 1
    except BrokenPromiseError as error:
        say(f"FUZZ_SEED={number}: {error}")
        return 1
    counts = ", ".join(f"{count} {name}" for name, count in tried.items())
    say(f"{number - first} rounds, no promise broken: {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
