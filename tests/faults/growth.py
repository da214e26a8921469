"""The check that nothing grows: memory, threads and open files at quiet moments of one life."""

import time

from tests.end_to_end.program import eventually
from tests.faults.process import Process

# What a life has after its first quiet moments is what it needs; the history of events comes on top.
WARM_UP = 2
MORE_MEMORY_MIB = 8.0
MORE_THREADS = 2
MORE_FILES = 4
BUSIEST = 0.5


def check_rest(process: Process) -> None:
    """Measure a process that has nothing to do, and check that it does next to nothing."""

    def rests() -> bool:
        before = process.measure()
        time.sleep(0.5)
        after = process.measure()
        process.measures.append(after)
        return after.cpu - before.cpu < BUSIEST * 0.5

    eventually(rests)


def check(process: Process) -> None:
    """Compare the last quiet moment of a life with those after its warm-up."""
    if len(process.measures) <= WARM_UP + 1:
        return
    early, late = process.measures[WARM_UP], process.measures[-1]
    assert late.memory <= early.memory + MORE_MEMORY_MIB, f"memory: {process.measures}"
    assert late.threads <= early.threads + MORE_THREADS, f"threads: {process.measures}"
    assert late.files <= early.files + MORE_FILES, f"open files: {process.measures}"
