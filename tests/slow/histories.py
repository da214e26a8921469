"""Many random histories, and each on which model and product disagree.

python -m tests.slow.histories --histories 100000 --seed 1
"""

import argparse
import sys
import time

from tests.model.compare import disagreements


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
