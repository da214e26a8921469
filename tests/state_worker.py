"""A process for the tests to kill.

For each number behind a directory, a child records steps in a directory of that name until the kernel kills
it, because it writes beyond so many bytes of a file. It prints that number and each step once it is recorded.
"""

import os
import resource
import signal
import sys
from pathlib import Path
from typing import NoReturn

from exporter.health import Health
from exporter.state.store import Store
from tests.clocks import HandClock
from tests.state_support import START, nth_step


def main() -> None:
    directory, *sizes = sys.argv[1:]
    for size in sizes:
        child = os.fork()
        if not child:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
            _record(Path(directory, size))
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGXFSZ


def _record(directory: Path) -> NoReturn:
    clock = HandClock(START)
    store = Store.open(directory, health=Health(clock), clock=clock)
    known = store.load()
    number = known.incarnation or 0
    while True:
        number += 1
        step = nth_step(known, number)
        store.record(step)
        known = step.state
        print(f"{directory.name} {number}", flush=True)  # noqa: T201 - how it talks to the test


if __name__ == "__main__":
    main()
