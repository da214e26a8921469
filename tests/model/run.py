"""The long run: many random histories, and each on which model and product disagree.

python -m tests.model.run --histories 100000 --seed 1
"""

import argparse
import sys
import time

from tests.model.compare import difference, report
from tests.model.histories import history


def disagreements(seed: int | str, histories: int, most: int) -> list[str]:
    """Return reports on the first histories on which model and product disagree, ``most`` at most."""
    found: list[str] = []
    for number in range(histories):
        steps = history(f"{seed}-{number}")
        if where := difference(steps):
            found.append(f"history {seed}-{number}\n{report(steps, where)}")
        if len(found) == most:
            break
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=100_000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--most", type=int, default=5, help="how many disagreements to show")
    arguments = parser.parse_args()
    begun = time.monotonic()
    found = disagreements(arguments.seed, arguments.histories, arguments.most)
    for text in found:
        sys.stdout.write(f"{text}\n\n")
    seconds = time.monotonic() - begun
    sys.stdout.write(f"{seconds:.0f} s, seed {arguments.seed}; {len(found)} disagreements\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
