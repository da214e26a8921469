"""A process for the tests to kill: records steps in the directory given, and prints each once it is recorded.

With a second argument, ``hold``, it only opens the store, says "ready", and waits for its end.
"""

import sys
from pathlib import Path

from exporter.health import Health
from exporter.state import Store
from tests.state_support import HandClock, nth_step


def main() -> None:
    """Record without end."""
    clock = HandClock()
    store = Store.open(Path(sys.argv[1]), health=Health(clock), clock=clock)
    if sys.argv[2:] == ["hold"]:
        print("ready", flush=True)  # noqa: T201 - how it talks to the test
        sys.stdin.read()
        return
    known = store.load()
    number = known.incarnation or 0
    while True:
        number += 1
        step = nth_step(known, number)
        store.record(step)
        known = step.known
        print(number, flush=True)  # noqa: T201 - how it talks to the test


if __name__ == "__main__":
    main()
